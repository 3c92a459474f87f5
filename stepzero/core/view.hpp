#pragma once
// Views and tensors. Everything in stepzero is a matrix: (rows, columns) = (tokens, channels), row-major,
// with a stride so that a slice of columns is a view too. A vector is a matrix of one row.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "stepzero/core/error.hpp"
#include "stepzero/core/memory.hpp"

namespace stepzero {

using Index = std::int64_t;

template <class S>
struct View {
  S* data = nullptr;
  Index rows = 0;
  Index cols = 0;
  Index stride = 0;  // elements from one row to the next

  View() = default;
  View(S* data_, Index rows_, Index cols_, Index stride_) : data(data_), rows(rows_), cols(cols_), stride(stride_) {}
  View(S* data_, Index rows_, Index cols_) : View(data_, rows_, cols_, cols_) {}

  operator View<const S>() const
    requires(!std::is_const_v<S>)
  {
    return {data, rows, cols, stride};
  }

  [[nodiscard]] bool empty() const { return data == nullptr; }
  [[nodiscard]] Index size() const { return rows * cols; }
  [[nodiscard]] bool contiguous() const { return stride == cols || rows <= 1; }
  [[nodiscard]] S* row(Index r) const { return data + r * stride; }
  S& operator()(Index r, Index c) const { return data[r * stride + c]; }

  [[nodiscard]] View block(Index row0, Index rows_, Index col0, Index cols_) const {
    return {data + row0 * stride + col0, rows_, cols_, stride};
  }
  [[nodiscard]] View columns(Index col0, Index cols_) const { return block(0, rows, col0, cols_); }
  [[nodiscard]] View slice(Index row0, Index rows_) const { return block(row0, rows_, 0, cols); }
};

template <class S>
View(S*, Index, Index) -> View<S>;

// Owned memory, aligned for SIMD, not initialised.
template <class S>
class Tensor {
 public:
  Tensor() = default;
  Tensor(Index rows, Index cols) : rows_(rows), cols_(cols) {
    data_.reset(static_cast<S*>(allocate(static_cast<std::size_t>(rows * cols) * sizeof(S))));
  }

  [[nodiscard]] View<S> view() { return {data_.get(), rows_, cols_}; }
  [[nodiscard]] View<const S> view() const { return {data_.get(), rows_, cols_}; }
  operator View<S>() { return view(); }
  operator View<const S>() const { return view(); }
  [[nodiscard]] S* data() { return data_.get(); }
  [[nodiscard]] const S* data() const { return data_.get(); }
  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index cols() const { return cols_; }
  [[nodiscard]] Index size() const { return rows_ * cols_; }
  // The same memory under another shape of the same size.
  void reshape(Index rows, Index cols) {
    STEPZERO_CHECK(rows * cols == size());
    rows_ = rows;
    cols_ = cols;
  }
  S& operator()(Index r, Index c) { return data_.get()[r * cols_ + c]; }
  const S& operator()(Index r, Index c) const { return data_.get()[r * cols_ + c]; }

 private:
  struct Free {
    void operator()(S* p) const { release(p); }
  };
  std::unique_ptr<S[], Free> data_;
  Index rows_ = 0;
  Index cols_ = 0;
};

}  // namespace stepzero
