#pragma once
// Requests of stepzero.hpp as JSON objects: keys are the long flags of the command line, with underscores.
#include <string_view>

#include "stepzero/stepzero.hpp"

namespace stepzero {

// All that a request may say; each call reads what is its own.
struct AnyRequest {
  ModelRequest model;
  PredictRequest predict;
  MeasureRequest measure;
  ReportRequest report;
  InitRequest init;
  TrainRequest train;
  AuditRequest audit;
  std::string tensor;  // of fill
  std::uint64_t first = 0, count = 0;
};

enum class Call : std::uint8_t { predict, measure, compare, report, train, init, audit, describe, tensors, fill };

// An unknown key, or a value of another kind, is an error that names it.
Expected<AnyRequest> read_request(Call call, std::string_view json);

}  // namespace stepzero
