/* A generator in C: N samples of a counter and a field of 8 x 8 x 8 values that follow from it.
 *
 *     cc generator.c $(pkg-config --cflags --libs ringreel) -o generator
 *     ./generator config.yaml 1000
 *
 * SIGTERM and Ctrl-C end it after the current sample. It prints the number of finished samples whenever that grows.
 */
#include <ringreel.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static ringreel_generator *generator;
static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
    ringreel_stop(generator);
}

static void fail(void)
{
    fprintf(stderr, "%s\n", ringreel_message());
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: generator CONFIG SAMPLES\n");
        return 2;
    }
    const long samples = atol(argv[2]);
    if (ringreel_open(argv[1], &generator))
        fail();
    signal(SIGTERM, stop);
    signal(SIGINT, stop);

    static float field[8][8][8];
    const uint64_t shape[] = {8, 8, 8};
    uint64_t finished = 0;
    for (long number = 0; number < samples && !stopped; number++) {
        for (int i = 0; i < 8 * 8 * 8; i++)
            (&field[0][0][0])[i] = (float)(number + 0.5 * i);
        const int64_t counter = number;
        if (ringreel_begin(generator) || ringreel_part(generator, "number", "int64", 0, NULL, &counter) ||
            ringreel_part(generator, "field", "float32", 3, shape, field) ||
            ringreel_meta_text(generator, "language", "C") || ringreel_meta_int(generator, "seed", number))
            fail();
        const int code = ringreel_commit(generator);
        if (code == RINGREEL_ERROR_INTERRUPTED)
            break;
        if (code)
            fail();
        if (ringreel_finished(generator) != finished) {
            finished = ringreel_finished(generator);
            printf("%llu\n", (unsigned long long)finished);
            fflush(stdout);
        }
    }
    if (ringreel_close(generator, 1, &finished))
        fail();
    printf("%llu\n", (unsigned long long)finished);
    return 0;
}
