/* Calls that must fail, and generators that are opened and closed repeatedly: mistakes CONFIG. A test compiles it with
 * AddressSanitizer and UndefinedBehaviorSanitizer. Prints each call with another result, and then exits with 1. */
#include <math.h>
#include <ringreel.h>
#include <stdio.h>
#include <string.h>

static int wrong;

static void check(int line, int code, int expected)
{
    const char *message = ringreel_message();
    if (code != expected || (strlen(message) > 0) != (expected != RINGREEL_OK)) {
        printf("line %d: code %d, expected %d: \"%s\"\n", line, code, expected, message);
        wrong = 1;
    }
}

/* The call comes first, because the message is valid until the next one. */
#define EXPECT(call, expected)              \
    do {                                    \
        int code = (call);                  \
        check(__LINE__, code, (expected));  \
    } while (0)

static void use(ringreel_generator *generator)
{
    const uint64_t shape[3] = {2, 2, 2}, huge[3] = {UINT64_MAX, UINT64_MAX, 2};
    const int64_t number = 7;
    const float field[8] = {0};
    EXPECT(ringreel_part(generator, NULL, "int64", 0, NULL, &number), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_part(generator, "number", NULL, 0, NULL, &number), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_part(generator, "number", "int65", 0, NULL, &number), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_part(generator, "number", "int64", 3, NULL, &number), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_part(generator, "number", "int64", 0, NULL, NULL), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_part(generator, "field", "float32", 3, huge, field), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_meta_text(generator, "\xff", "C"), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_meta_text(generator, "language", NULL), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_commit(generator), RINGREEL_ERROR_SAMPLE);
    for (int n = 0; n < 3; n++) {
        EXPECT(ringreel_begin(generator), RINGREEL_OK);
        EXPECT(ringreel_part(generator, "number", "int64", 0, NULL, &number), RINGREEL_OK);
        EXPECT(ringreel_part(generator, "field", "float32", 3, shape, field), RINGREEL_OK);
        EXPECT(ringreel_meta_int(generator, "seed", n), RINGREEL_OK);
        EXPECT(ringreel_meta_double(generator, "value", NAN), RINGREEL_OK);
        EXPECT(ringreel_meta_text(generator, "language", "C"), RINGREEL_OK);
        EXPECT(ringreel_commit(generator), RINGREEL_OK);
    }
    /* A sample that is never committed. */
    EXPECT(ringreel_begin(generator), RINGREEL_OK);
    EXPECT(ringreel_part(generator, "number", "int64", 0, NULL, &number), RINGREEL_OK);
}

int main(int argc, char **argv)
{
    ringreel_generator *generator = NULL;
    uint64_t finished = 0;
    if (argc != 2)
        return 2;
    EXPECT(ringreel_open(NULL, &generator), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_open(argv[1], NULL), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_open("\xff", &generator), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_open("nothing.yaml", &generator), RINGREEL_ERROR_CONFIG);
    EXPECT(ringreel_begin(NULL), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_commit(NULL), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_flush(NULL), RINGREEL_ERROR_ARGUMENT);
    EXPECT(ringreel_close(NULL, 0, NULL), RINGREEL_ERROR_ARGUMENT);
    ringreel_stop(NULL);
    for (int n = 0; n < 10; n++) {
        EXPECT(ringreel_open(argv[1], &generator), RINGREEL_OK);
        if (!generator)
            return 1;
        use(generator);
        if (n % 3 == 0)
            EXPECT(ringreel_flush(generator), RINGREEL_OK);
        EXPECT(ringreel_close(generator, n % 2, &finished), RINGREEL_OK);
        generator = NULL;
        if (finished != 3) {
            printf("%llu samples finished, expected 3\n", (unsigned long long)finished);
            wrong = 1;
        }
    }
    return wrong;
}
