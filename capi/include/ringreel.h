/* ringreel: generators in C and in languages that can call C.
 *
 *     ringreel_generator *generator;
 *     if (ringreel_open("config.yaml", &generator)) { fprintf(stderr, "%s\n", ringreel_message()); exit(1); }
 *     const uint64_t shape[] = {64, 64, 64};
 *     while (...) {
 *         ringreel_begin(generator);
 *         ringreel_part(generator, "image", "float32", 3, shape, image);
 *         ringreel_part(generator, "label", "uint8", 3, shape, label);
 *         if (ringreel_commit(generator)) { ... }
 *     }
 *     ringreel_close(generator, 0, NULL);
 *
 * Every function that returns int returns RINGREEL_OK (0) on success and one of the codes below on failure;
 * ringreel_message() then says what happened, to which path, and what to do. Text is UTF-8 and ends with a zero byte.
 * Threads may share a generator, which has one sample at a time; a forked child may not use it. Warnings and errors are
 * logged to stderr; RINGREEL_LOG=error, warn, info or debug sets the level.
 */
#ifndef RINGREEL_H
#define RINGREEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RINGREEL_OK = 0,
    RINGREEL_ERROR_ARGUMENT = 1,       /* a null pointer, text that is not UTF-8, an unknown dtype */
    RINGREEL_ERROR_CONFIG = 2,         /* the configuration cannot be used */
    RINGREEL_ERROR_RING = 3,           /* the ring is missing, damaged, or does not match the configuration */
    RINGREEL_ERROR_SAMPLE = 4,         /* the sample does not fit the ring; nothing was written */
    RINGREEL_ERROR_FILESYSTEM = 5,     /* the filesystem refused a call, and waiting does not help */
    RINGREEL_ERROR_COORDINATION = 6,   /* the server that keeps the ring's index refuses or does not answer */
    RINGREEL_ERROR_INTERRUPTED = 7,    /* ringreel_stop ended a wait; the same call may be made again */
    RINGREEL_ERROR_INTERNAL = 8        /* a defect of ringreel: please report it */
};

typedef struct ringreel_generator ringreel_generator;

/* Opens the ring that the YAML file describes, creates it if it does not exist, and joins it as a generator. */
int ringreel_open(const char *config_path, ringreel_generator **generator);

/* Begins a sample. Parts and metadata of a sample that was not committed are dropped. */
int ringreel_begin(ringreel_generator *generator);

/* Adds a part to the sample. The elements are copied, so the memory may be reused at once.
 *
 * name    one of the configuration's SAMPLE
 * dtype   "uint8" ... "uint64", "int8" ... "int64", "float16", "bfloat16", "float32", "float64", "complex64",
 *         "complex128", "bool", or "bytes" (one axis)
 * ndim    number of axes; 0 for a scalar
 * shape   lengths of the axes, outermost first (row-major order: the last axis is contiguous)
 * data    the elements in native byte order
 */
int ringreel_part(ringreel_generator *generator, const char *name, const char *dtype, size_t ndim, const uint64_t *shape,
                  const void *data);

/* Adds metadata to the sample, under a key. A key that is set again replaces its value. */
int ringreel_meta_int(ringreel_generator *generator, const char *key, int64_t value);
int ringreel_meta_double(ringreel_generator *generator, const char *key, double value);
int ringreel_meta_text(ringreel_generator *generator, const char *key, const char *value);

/* Writes the sample. Blocks while the ring or the disk is full. A sample is safe when it is finished, which
 * SEGMENT_SAMPLES decides: ringreel_finished counts finished samples, in the order of their commits. */
int ringreel_commit(ringreel_generator *generator);

/* Finishes every sample that was committed. Blocks until all have a place in a generation. */
int ringreel_flush(ringreel_generator *generator);

/* Returns the number of samples of this generator that are finished: each is delivered exactly once, even if this
 * process is killed now. Returns 0 for a null pointer. */
uint64_t ringreel_finished(ringreel_generator *generator);

/* Ends the current wait, and every later one, of this generator: the waiting call returns RINGREEL_ERROR_INTERRUPTED.
 * May be called from a signal handler or another thread, but not while or after ringreel_close runs. */
void ringreel_stop(ringreel_generator *generator);

/* Finishes every committed sample, leaves the ring, and frees the generator, also on failure.
 *
 * promote    1: makes all samples readable now, by promoting a generation that is not full; 0: leaves it to fill
 * finished   receives the number of finished samples; may be null
 */
int ringreel_close(ringreel_generator *generator, int promote, uint64_t *finished);

/* Returns the message of this thread's last failure, or an empty text. Valid until the thread's next call. */
const char *ringreel_message(void);

/* Returns the version of the library, as in "0.1.0". */
const char *ringreel_version(void);

#ifdef __cplusplus
}
#endif
#endif
