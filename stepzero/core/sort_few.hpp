#pragma once
// Sorts a few elements and keeps the order of equals. (The buffer of std::stable_sort is deprecated, and clang says so.)
#include <algorithm>
#include <iterator>
#include <vector>

namespace stepzero {

template <class T, class Less>
void sort_few(std::vector<T>& list, const Less& less) {
  for (auto it = list.begin(); it != list.end(); ++it) std::rotate(std::upper_bound(list.begin(), it, *it, less), it, std::next(it));
}

}  // namespace stepzero
