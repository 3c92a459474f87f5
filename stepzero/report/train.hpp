#pragma once
// What a training is shown as: text for a terminal, JSON (stepzero.train/1), CSV, a page.
#include <string>
#include <vector>

#include "stepzero/models/architecture.hpp"
#include "stepzero/report/terminal_style.hpp"
#include "stepzero/train/train.hpp"

namespace stepzero {

// What was trained, on what and how.
struct TrainSubject {
  Architecture architecture;
  Index parameters = 0;
  std::string scheme;
  TrainOptions options;
  int steps = 0;
  std::string data;       // in words: "the derivations, bytes"
  Index data_tokens = 0;  // of the text, those held out among them; 0: sequences of a file
  Index batch = 0, seq_len = 0;
  double validation = 0;
};

std::string train_json(const TrainSubject& subject, const std::vector<RunRecord>& runs);
std::string train_csv(const std::vector<RunRecord>& runs);
std::string train_text(const TrainSubject& subject, const std::vector<RunRecord>& runs, const Look& look);

// A page like that of `report`: losses with their spread over seeds, the signal and the gradient over the depth at the watched steps.
std::string train_html(const TrainSubject& subject, const std::vector<RunRecord>& runs, const std::string& command,
                       const std::string& version);
// Its template (web/train.html).
std::string_view train_page_template();

// The loss of all runs of a scheme, step by step: mean and, of several, their standard deviation.
struct LossBand {
  std::string scheme;
  std::vector<double> mean, deviation;
  std::vector<HeldOut> validation;  // means
};
std::vector<LossBand> loss_bands(const std::vector<RunRecord>& runs);

// "adamw, rate 0.001, decay 0.1, clip 1, cosine to 0.0001"
std::string how_trained(const TrainSubject& subject);

nlohmann::ordered_json json(const OptimizerOptions& options);

}  // namespace stepzero
