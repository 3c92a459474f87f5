#pragma once
// Walks over untrusted bytes from left to right: nothing is read, made or passed over that is not there. After the first
// refusal every call is refused.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/gguf.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {

class ByteCursor {
 public:
  ByteCursor(const ByteSource& source, std::string_view file_name) : source_(source), file_name_(file_name) {}

  [[nodiscard]] std::uint64_t at() const { return at_; }
  [[nodiscard]] std::uint64_t left() const { return source_.size - at_; }
  Error take_error() { return std::move(error_); }

  bool refuse(std::uint64_t byte, std::string_view what, std::string hint) {
    error_ = Error{fmt::format("{}: byte {}: {}", show(file_name_), byte, what), std::move(hint)};
    return false;
  }

  template <class T>
    requires std::is_trivially_copyable_v<T>
  bool read(T& value, const char* what) {
    return fetch(std::as_writable_bytes(std::span(&value, 1)), what);
  }
  bool read(std::string& text, std::uint64_t length, const char* what) {
    if (!there(length, what)) return false;
    text.resize(length);
    return fetch(std::as_writable_bytes(std::span(text)), what);
  }
  bool skip(std::uint64_t length, const char* what) {
    if (!there(length, what)) return false;
    at_ += length;
    return true;
  }

 private:
  bool there(std::uint64_t length, const char* what) {
    if (!rejects("gguf.remaining", length > left())) return true;
    return refuse(at_, fmt::format("{} takes {} bytes, but {} follow", what, length, left()),
                  "the file is damaged, cut short or made to harm");
  }
  bool fetch(std::span<std::byte> out, const char* what) {
    if (!there(out.size(), what)) return false;
    while (!out.empty()) {
      if (at_ < first_ || at_ >= first_ + filled_) {
        first_ = at_;
        filled_ = std::min<std::uint64_t>(buffer_.size(), left());
        if (auto done = source_.read(first_, std::span(buffer_).first(filled_)); !done) {
          error_ = std::move(done.error());
          return false;
        }
      }
      const std::uint64_t n = std::min<std::uint64_t>(out.size(), first_ + filled_ - at_);
      std::memcpy(out.data(), buffer_.data() + (at_ - first_), n);
      out = out.subspan(n);
      at_ += n;
    }
    return true;
  }

  const ByteSource& source_;
  std::string_view file_name_;
  std::uint64_t at_ = 0;
  std::uint64_t first_ = 0;  // what of the file the buffer holds
  std::uint64_t filled_ = 0;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(std::size_t{1} << 14);
  Error error_;
};

}  // namespace stepzero
