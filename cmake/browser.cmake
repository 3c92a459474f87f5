# The program for the browser (STEPZERO_BROWSER, preset browser): the portable build as one WebAssembly module of the calls behind C
# (stepzero/capi/c.h). What the exported functions need is linked and nothing else: the rest need not even be compiled.
set(STEPZERO_EXPORTS sz_version sz_predict sz_describe sz_models sz_schemes sz_explain sz_status sz_text sz_free malloc free)

set(STEPZERO_LIBRARY_KIND OBJECT)  # GNU's ar makes no index of WebAssembly

# Headers of others, out of a folder that holds no header of this machine's C library.
foreach(library fmt nlohmann hwy)
  find_path(${library}_ROOT ${library} PATHS /usr/include /usr/local/include REQUIRED NO_CMAKE_FIND_ROOT_PATH)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)
  file(CREATE_LINK ${${library}_ROOT}/${library} ${PROJECT_BINARY_DIR}/include/${library} SYMBOLIC)
endforeach()
add_library(stepzero_headers INTERFACE)
target_include_directories(stepzero_headers SYSTEM INTERFACE ${PROJECT_BINARY_DIR}/include)
target_compile_definitions(stepzero_headers INTERFACE FMT_HEADER_ONLY JSON_NOEXCEPTION HWY_COMPILE_ONLY_SCALAR)
add_library(nlohmann_json::nlohmann_json ALIAS stepzero_headers)
set(STEPZERO_FMT stepzero_headers)
set(STEPZERO_HWY stepzero_headers)

add_compile_options(-fno-exceptions -fno-rtti -msimd128 -mbulk-memory -mnontrapping-fptoint -msign-ext -Wno-shorten-64-to-32)
# Small, but for what takes the time.
set(CMAKE_CXX_FLAGS_RELEASE "-Os -DNDEBUG")
file(GLOB hot ${PROJECT_SOURCE_DIR}/stepzero/kernels/*.cpp ${PROJECT_SOURCE_DIR}/stepzero/kernels/product/*.cpp ${PROJECT_SOURCE_DIR}/stepzero/ops/attention*.cpp
  ${PROJECT_SOURCE_DIR}/stepzero/ops/experts_moments.cpp ${PROJECT_SOURCE_DIR}/stepzero/ops/cross_entropy_moments.cpp ${PROJECT_SOURCE_DIR}/stepzero/ops/kernel_draw.cpp)
set_source_files_properties(${hot} PROPERTIES COMPILE_OPTIONS -O2 SKIP_PRECOMPILE_HEADERS ON)

# Called when stepzero_lib is there.
function(stepzero_module)
  add_executable(explorer stepzero/capi/c.cpp stepzero/capi/requests.cpp)
  target_link_libraries(explorer PRIVATE stepzero_lib stepzero_options stepzero_headers)
  target_compile_definitions(explorer PRIVATE STEPZERO_VERSION="${PROJECT_VERSION}")
  list(TRANSFORM STEPZERO_EXPORTS PREPEND -Wl,--export= OUTPUT_VARIABLE exports)
  set_target_properties(explorer PROPERTIES SUFFIX .wasm)
  # -O0 says nothing of the code: with any other the driver runs wasm-opt where it finds one
  target_link_options(explorer PRIVATE -O0 -mexec-model=reactor -Wl,--strip-all -Wl,--stack-first -Wl,-z,stack-size=4194304 ${exports})
endfunction()
