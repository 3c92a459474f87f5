# What the portable build (STEPZERO_PORTABLE) has instead of libraries: files that define the same functions. The browser's build
# (cmake/browser.cmake) takes them too.
set(STEPZERO_BY_LIBRARIES core/parallel.cpp kernels/eigen.cpp kernels/product/gemm.cpp kernels/product/libraries.cpp kernels/product/tile_product.cpp)
set(STEPZERO_PLAIN core/parallel_serial.cpp kernels/eigen_plain.cpp kernels/product/plain_gemm.cpp kernels/targets.cpp)
if(STEPZERO_PORTABLE)
  set(others ${STEPZERO_BY_LIBRARIES})
else()
  set(others ${STEPZERO_PLAIN})
endif()
list(TRANSFORM others PREPEND ${PROJECT_SOURCE_DIR}/stepzero/)
list(REMOVE_ITEM STEPZERO_SOURCES ${others})
# A browser has no processes, disks and weights: what is for them is not compiled, and nothing that the module exports asks for it.
if(STEPZERO_BROWSER)
  list(FILTER STEPZERO_SOURCES EXCLUDE REGEX "/(train|audit|solve)/|core/memory.cpp|weights/[b-z][a-z_]*.cpp|pass/(first|fill|measure_pass|measure.cpp|pass|real|signal|step_scan|weightless)\
|io/(bpe|gguf|mapping|output|corpus|tokenizer|expression|unicode|added|text_steps|checkpoint|safetensors|shard|encoding|recognise)\
|api/(train|audit|checkpoints|coord|diff|transfer|solve|sweep)|signal/coord|report/(audit|train|coord|transfer|difference|solve|sweep|export)")
else()
  list(FILTER STEPZERO_SOURCES EXCLUDE REGEX "core/memory_plain.cpp|pass/measure_absent.cpp")
endif()
