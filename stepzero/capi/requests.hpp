#pragma once
// Requests of stepzero.hpp as JSON objects: keys are the long flags of the command line, with underscores.
#include <string_view>

#include "stepzero/stepzero.hpp"

namespace stepzero {

// A tensor of the caller.
struct TensorRequest {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::string dtype = "F32";
  std::string role;                      // empty: by its name
  std::vector<std::uint64_t> whole, at;  // of a box of a tensor: that one's shape, and where the box begins
};

// Some numbers of a tensor: from `first` on, or a box.
struct PieceRequest {
  std::string tensor;
  std::string dtype = "f32";
  std::uint64_t first = 0, count = 0;
  std::vector<std::uint64_t> offset, size;
};

// All that a request may say; each call reads what is its own.
struct AnyRequest {
  ModelRequest model;
  PredictRequest predict;
  MeasureRequest measure;
  ReportRequest report;
  InitRequest init;
  TrainRequest train;
  StepRequest step;
  CoordRequest coord;
  TransferRequest transfer;
  SolveRequest solve;
  SweepRequest sweep;
  AuditRequest audit;
  DiffRequest diff;
  bool consequences = true;            // of an audit in memory: predict what follows
  std::vector<TensorRequest> tensors;  // without a model, or to audit
  std::vector<PieceRequest> pieces;    // to fill
};

enum class Call : std::uint8_t {
  predict,
  measure,
  compare,
  report,
  train,
  step,
  coord,
  transfer,
  solve,
  sweep,
  init,
  audit,
  audit_memory,
  diff,
  describe,
  tensors,
  fill
};

// An unknown key, or a value of another kind, is an error that names it.
Expected<AnyRequest> read_request(Call call, std::string_view json);

}  // namespace stepzero
