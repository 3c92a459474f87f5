/* stepzero for other languages: stepzero.hpp (the same calls, the same meaning) with nothing but C in between.
 *
 *   sz_result* r = sz_predict("{\"model\": \"gpt2\", \"seq_len\": 64}", NULL);
 *   if (sz_status(r) == SZ_FINE) puts(sz_text(r, "json")); else fputs(sz_text(r, "error"), stderr);
 *   sz_free(r);
 *
 * A request is a JSON object. Its keys are the long flags of the command line with underscores; lists are lists. An unknown key is an
 * error. Calls may run in any threads at once. Nothing is done to the process. */
#ifndef STEPZERO_C_H
#define STEPZERO_C_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SZ_API __attribute__((visibility("default")))
#else
#define SZ_API
#endif

/* A call's two words with its caller, who owns it; it may be NULL. Read and written without locks: plain stores and loads of another
 * thread suffice. */
typedef struct sz_watch {
  double progress; /* out: share of the work done, 0 to 1 */
  int32_t stop;    /* in: not 0 ends the call within milliseconds */
  int32_t threads; /* in: 0: as many as there are */
} sz_watch;

typedef struct sz_result sz_result;

enum { SZ_FINE = 0, SZ_FAILED = 1, SZ_STOPPED = 2, SZ_BUSY = 3 };

SZ_API const char* sz_version(void);

/* Texts: "json", "text" (the terminal's table), "warnings". */
SZ_API sz_result* sz_predict(const char* request, sz_watch* watch);
SZ_API sz_result* sz_measure(const char* request, sz_watch* watch);
SZ_API sz_result* sz_compare(const char* request, sz_watch* watch);
/* "json", "text", "html" */
SZ_API sz_result* sz_report(const char* request, sz_watch* watch);
/* "json", "csv", "html" */
SZ_API sz_result* sz_train(const char* request, sz_watch* watch);
/* "json": {"files": [{"path", "bytes", "kept"}], "shards_missing"} */
SZ_API sz_result* sz_init(const char* request, sz_watch* watch);
/* "json", "html" */
SZ_API sz_result* sz_audit(const char* request, sz_watch* watch);
/* "text": the architecture file; "json": the canonical graph */
SZ_API sz_result* sz_describe(const char* request, sz_watch* watch);
/* "json": {"tensors": [{"name", "shape", "role", "layer", "std"}]} of a model under a scheme */
SZ_API sz_result* sz_tensors(const char* request, sz_watch* watch);
/* Numbers of one tensor, as sz_init would write them: {"model", "set", "scheme", "seed", "tensor", "first", "count", "dtype"}: elements
 * [first, first + count), row by row, into `data`: f32, bf16 or f16. */
SZ_API sz_result* sz_fill(const char* request, void* data, sz_watch* watch);
/* "json": {"models": [{"name", "family", "parameters", ...}]}, {"schemes": [{"name", "summary", "source"}]} */
SZ_API sz_result* sz_models(void);
SZ_API sz_result* sz_schemes(void);

SZ_API int32_t sz_status(const sz_result* result);
/* A text of a result, "error" and "hint" of one that failed; empty where there is none. It lives as long as the result. */
SZ_API const char* sz_text(const sz_result* result, const char* what);
SZ_API void sz_free(sz_result* result);

#ifdef __cplusplus
}
#endif
#endif
