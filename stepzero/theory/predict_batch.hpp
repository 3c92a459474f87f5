#pragma once
// A prediction for many sequences from few.
//
// Sequences of a batch share nothing but tokens that both have: what goes down is that of each sequence alone, and the squared norm
// of a weight's gradient is a mean over pairs of sequences, w of one with itself and x of two different ones:
//     E |d theta|^2 = w / B + (1 - 1/B) x
// w is that of the sequence whose own repetitions are nearest to the mean over the batch. x comes from four stretches of a quarter of
// the length, chosen so that they share as many targets, and as many pairs of token and target, as the sequences of the batch do; what
// they share more or less of targets is taken out, for x goes with it. Encoder and decoder are cut at the same places. Of images x / w
// comes from two of half as many pixels, and goes with how many pairs of the batch are of one class; where that leaves next to nothing, as
// with many classes and few images, x is 0. Where images share the statistics of a batch norm, one is predicted as it is, and how gradients
// change with their number by one and two smaller ones.
#include <functional>

#include "stepzero/core/error.hpp"
#include "stepzero/signal/signal.hpp"
#include "stepzero/theory/predict.hpp"

namespace stepzero {

// Whether a batch is so large that few sequences stand for it: four images or more, or four sequences or more with more than 256 tokens in
// all.
bool stands_for_many(const Batch& batch);

// `smaller`: images of Images::cut, by the model that is made for them
using Predicts = std::function<Expected<Signal>(const Batch& batch, double effort, bool smaller)>;

// Images that are cut: pixels on a side, as they are and as they were, and rows of a model for them.
struct SmallerImages {
  Index side = 0, whole = 0, colours = 1, length = 1;
};
struct Images {
  Index classes = 1;
  SmallerImages cut = {};  // the side as it was: the model can be made for no others
  bool normed = false;     // by statistics that they share: batch norm
};

// `predicts` predicts the batch it is given, with that share of the usual sampling.
Expected<Signal> predict_batch(const Batch& batch, const Predicts& predicts, const Images& images);

}  // namespace stepzero
