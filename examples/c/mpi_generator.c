/* One generator per MPI rank, in one ring. Each rank makes its own samples; no rank waits for another.
 *
 *     mpicc mpi_generator.c $(pkg-config --cflags --libs ringreel) -o mpi_generator
 *     mpirun -n 4 ./mpi_generator config.yaml 250
 */
#include <mpi.h>
#include <ringreel.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int code)
{
    if (code) {
        fprintf(stderr, "%s\n", ringreel_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);

    ringreel_generator *generator;
    check(ringreel_open(argv[1], &generator));
    static float field[8][8][8];
    const uint64_t shape[] = {8, 8, 8};
    for (int64_t step = 0; step < atol(argv[2]); step++) {
        const int64_t number = step * ranks + rank;
        for (int i = 0; i < 8 * 8 * 8; i++)
            (&field[0][0][0])[i] = (float)(number + 0.5 * i);
        check(ringreel_begin(generator));
        check(ringreel_part(generator, "number", "int64", 0, NULL, &number));
        check(ringreel_part(generator, "field", "float32", 3, shape, field));
        check(ringreel_meta_text(generator, "language", "C"));
        check(ringreel_meta_int(generator, "seed", number));
        check(ringreel_commit(generator));
    }
    /* One rank promotes the generation that is not full, after all others have left. Samples for which a rank found no room
     * are finished, and adopted by the next manager or generator. */
    uint64_t finished = 0;
    if (rank > 0)
        check(ringreel_close(generator, 0, &finished));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        check(ringreel_close(generator, 1, &finished));
    unsigned long long mine = finished, all = 0;
    MPI_Reduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%llu\n", all);
    MPI_Finalize();
    return 0;
}
