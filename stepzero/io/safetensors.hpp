#pragma once
// The safetensors format, read strictly and written so that a crash leaves the old file or the new one.
//
//   u64 N, little-endian | N bytes of JSON | data
//   JSON: {"__metadata__": {text: text}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//
// Tensors fill the data from end to end, no hole and no overlap. Nothing is aligned.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/io/file.hpp"

namespace stepzero {

enum class DType {
  Bool,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
};
int dtype_bits(DType dtype);
std::string_view dtype_name(DType dtype);

struct TensorInfo {
  std::string name;  // any text: show() it
  DType dtype = DType::F32;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the data
  std::uint64_t end = 0;
  std::uint64_t header_byte = 0;  // where its entry stands in the file, for messages

  [[nodiscard]] std::uint64_t elements() const;
};

class SafetensorsFile {
 public:
  // `lenient` accepts white space before the JSON, as the reference reader does.
  static Expected<SafetensorsFile> open(const std::string& path, bool lenient = false);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }  // sorted by name
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }  // ready to print

  // Elements [first, first + out.size()) of a F32, F16, BF16 or F64 tensor, NaN and all. Any number of threads may
  // read.
  [[nodiscard]] Expected<void> read_f32(const TensorInfo& tensor, std::uint64_t first, std::span<float> out) const;
  [[nodiscard]] Expected<void> read_f64(const TensorInfo& tensor, std::uint64_t first, std::span<double> out) const;

  [[nodiscard]] std::uint64_t data_start() const { return data_start_; }
  InputFile take_file() && { return std::move(file_); }

 private:
  explicit SafetensorsFile(InputFile file) : file_(std::move(file)) {}
  template <class T>
  Expected<void> read_as(const TensorInfo& tensor, std::uint64_t first, std::span<T> out) const;

  InputFile file_;
  std::uint64_t data_start_ = 0;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::string> warnings_;
};

struct TensorSpec {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::uint64_t> shape;
};

// Where everything goes in a file of these tensors: sorted by name, one after the other.
struct SafetensorsLayout {
  std::string head;                    // the length and the JSON: what the file begins with
  std::vector<std::uint64_t> offsets;  // of each tensor, from the start of the file
  std::uint64_t file_bytes = 0;

  // `path` is for messages.
  static Expected<SafetensorsLayout> make(const std::string& path, const std::vector<TensorSpec>& tensors,
                                          const std::map<std::string, std::string>& metadata);
};

struct TensorData {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::span<const float> data;
};

// `replace` allows an existing file to be replaced; otherwise it is an error.
Expected<void> write_safetensors(const std::string& path, const std::vector<TensorData>& tensors,
                                 const std::map<std::string, std::string>& metadata, bool replace = false);

}  // namespace stepzero
