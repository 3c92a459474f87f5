# The library behind C: what Python and other languages load. It exports the functions of capi/c.h and nothing else.
add_library(stepzero_c SHARED stepzero/capi/c.cpp stepzero/capi/memory.cpp stepzero/capi/requests.cpp)
set_target_properties(stepzero_c PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_link_libraries(stepzero_c PRIVATE stepzero_lib stepzero_options ${STEPZERO_FMT} nlohmann_json::nlohmann_json)
target_link_options(stepzero_c PRIVATE -Wl,--exclude-libs,ALL)
target_precompile_headers(stepzero_c PRIVATE <functional> <map> <string> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp>)
target_compile_options(stepzero_c PRIVATE $<$<CONFIG:Release>:-O1>)  # what is fast lies in the library
