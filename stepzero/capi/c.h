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
/* "json" (stepzero.step/1), "text", "html": the first update. "predicted": false leaves out the theory, "measure": true takes the step with
 * real weights, "search": false leaves out the loss over the rate. */
SZ_API sz_result* sz_step(const char* request, sz_watch* watch);
/* "json" (stepzero.coord/1), "text", "html", "verdict": "pass" or "fail". A key "widths" or "depths": a list. */
SZ_API sz_result* sz_coord(const char* request, sz_watch* watch);
/* "json" (stepzero.transfer/1), "text", "torch" (parameter groups of PyTorch), "scheme" (as a file of --scheme), "rates" (as a file of
 * --rates). "model" is the base; "target", "base_set", "target_set" say what the target is. */
SZ_API sz_result* sz_transfer(const char* request, sz_watch* watch);
/* "json", "text", "scheme" (a file of --scheme), "rates" (a table of --rates), "torch" (a snippet). "measure" is a number of draws. */
SZ_API sz_result* sz_solve(const char* request, sz_watch* watch);
/* "json", "csv", "text" (a heat map of the first quantity). "train" is a number of runs a cell. */
SZ_API sz_result* sz_sweep(const char* request, sz_watch* watch);
/* "json": {"files": [{"path", "bytes", "kept"}], "shards_missing"} */
SZ_API sz_result* sz_init(const char* request, sz_watch* watch);
/* "json", "html" */
SZ_API sz_result* sz_audit(const char* request, sz_watch* watch);
/* "json" (stepzero.diff/1), "text": {"left": a checkpoint, "right": another or a model, "scheme", "set", "seed"} */
SZ_API sz_result* sz_diff(const char* request, sz_watch* watch);
/* "text": the architecture file; "json": the canonical graph */
SZ_API sz_result* sz_describe(const char* request, sz_watch* watch);
/* The same of tensors that lie in memory, without gaps: {"tensors": [{"name", "shape", "dtype": "F32"}], "config", "scheme", "consequences",
 * ...}; data[i] is where the i-th lies. Nothing is copied. Of a box of a tensor, such as a shard, "whole" is that tensor's shape, "at" where
 * the box begins. */
SZ_API sz_result* sz_audit_memory(const char* request, const void* const* data, sz_watch* watch);
/* "json": {"tensors": [{"name", "shape", "role", "layer", "std"}], "changes"} of a model under a scheme, and what the scheme
 * changes in its forward pass, as --set would; without a model of {"tensors": [{"name",
 * "shape", "role"}]}, whose roles are told or seen in their names. */
SZ_API sz_result* sz_tensors(const char* request, sz_watch* watch);
/* Numbers of tensors, as sz_init would write them: {"model", "set", "scheme", "seed", "pieces": [...]}; the i-th piece goes to data[i],
 * without gaps. A piece is {"tensor", "first", "count", "dtype"}, elements [first, first + count) row by row, or {"tensor", "offset",
 * "size", "dtype"}, a box of them; dtype f32, bf16 or f16. */
SZ_API sz_result* sz_fill(const char* request, void* const* data, sz_watch* watch);
/* "json": {"models": [{"name", "family", "parameters", ...}]}, {"schemes": [{"name", "summary", "source"}]} */
SZ_API sz_result* sz_models(void);
SZ_API sz_result* sz_schemes(void);
/* "json": {"ops": [{"kind", "grade", "meaning", "head"}], "findings": [{"id", "meaning", "limit"}]}: what explain tells */
SZ_API sz_result* sz_explain(void);

SZ_API int32_t sz_status(const sz_result* result);
/* A text of a result, "error" and "hint" of one that failed; empty where there is none. It lives as long as the result. */
SZ_API const char* sz_text(const sz_result* result, const char* what);
SZ_API void sz_free(sz_result* result);

#ifdef __cplusplus
}
#endif
#endif
