#include "stepzero/io/recognise.hpp"

#include <algorithm>
#include <array>

namespace stepzero {
namespace {

constexpr const char* kConvert =
    "convert it where you trust it: python -c \"import torch, safetensors.torch as s; "
    "s.save_file(torch.load('in.pt', weights_only=True), 'out.safetensors')\"";
constexpr const char* kConvertNumpy =
    "convert it where you trust it: python -c \"import numpy, safetensors.numpy as s; "
    "s.save_file(dict(numpy.load('in.npz', allow_pickle=False)), 'out.safetensors')\"";
constexpr const char* kWebPage = "a download gave a web page; look at it for the reason, often a login";
constexpr const char* kUnpack = "unpack it first";

// As the length of a safetensors header each of these is far too large.
constexpr std::array kKinds = std::to_array<FileKind>({
    {"version https://git-lfs", "a git-LFS pointer, not the file itself", "fetch the file it stands for: git lfs pull"},
    {"<!doctype", "an HTML page", kWebPage},
    {"<html", "an HTML page", kWebPage},
    {"<?xml", "an XML page", kWebPage},
    {"pk\x03\x04", "a zip archive, as torch.save writes", kConvert},
    {"pk\x05\x06", "an empty zip archive", "the file was not written completely"},
    {"\x80\x02", "a Python pickle, as torch.save once wrote", kConvert},
    {"\x80\x03", "a Python pickle", kConvert},
    {"\x80\x04", "a Python pickle", kConvert},
    {"\x80\x05", "a Python pickle", kConvert},
    {"gguf", "a GGUF file", "stepzero audit reads it; measure and diff need the safetensors file it was made from"},
    {"ggml", "a GGML file, as GGUF was before 2023", "convert the model anew with llama.cpp's convert_hf_to_gguf.py"},
    {"\x93numpy", "a NumPy array", kConvertNumpy},
    {"\x89hdf", "an HDF5 file, as Keras writes", "load it with the program that wrote it and save it as safetensors"},
    {"\x1f\x8b", "a gzip archive", kUnpack},
    {"\xfd"
     "7zxz",
     "an xz archive", kUnpack},
    {"\x28\xb5\x2f\xfd", "a zstd archive", kUnpack},
    {"{", "JSON text", "was the file meant that this index or config stands beside?"},
});

constexpr FileKind kNumpyZip = {"", "a zip archive of NumPy arrays (.npz)", kConvertNumpy};

}  // namespace

const FileKind* recognise(std::string_view head) {
  std::string lower(head);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const std::size_t text = lower.find_first_not_of(" \t\r\n");  // pages may begin with empty lines
  const auto begins = [&](const FileKind& kind) {
    const bool page = kind.magic.front() == '<';
    return std::string_view(lower).substr(page && text != std::string::npos ? text : 0).starts_with(kind.magic);
  };
  const auto found = std::ranges::find_if(kKinds, begins);
  if (found == kKinds.end()) return nullptr;
  // the name of the first member stands at byte 30
  if (found->magic == "pk\x03\x04" && lower.find(".npy", 30) != std::string::npos) return &kNumpyZip;
  return &*found;
}

}  // namespace stepzero
