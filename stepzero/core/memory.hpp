#pragma once
#include <cstddef>

namespace stepzero {

// Memory aligned for SIMD; large blocks ask for huge pages, which are touched for the first time three times as fast.
void* allocate(std::size_t bytes);
void release(void* memory) noexcept;

// For programs that run passes: freed memory stays with the process. oneDNN takes and gives back its packing buffers in every
// product, and without this the system clears those pages anew each time (8 % of a pass).
void keep_freed_memory();

// Largest resident size of this process so far, in bytes.
std::size_t peak_memory();
// What the system could still give out, in bytes.
std::size_t available_memory();

}  // namespace stepzero
