# The command line, and the experiments it runs: applications of the library.
find_package(CLI11 REQUIRED)

# The source documents' statements as experiments: an application of the library.
file(GLOB CLAIM_SOURCES CONFIGURE_DEPENDS stepzero/claims/*.cpp)
add_library(stepzero_claims STATIC ${CLAIM_SOURCES})
compile_together(claims ${CLAIM_SOURCES})
target_link_libraries(stepzero_claims PUBLIC stepzero_lib ${STEPZERO_FMT} nlohmann_json::nlohmann_json PRIVATE stepzero_options ${STEPZERO_HWY})
target_precompile_headers(stepzero_claims PRIVATE <algorithm> <cmath> <functional> <map> <string> <vector> <fmt/format.h>)

file(GLOB CLI_SOURCES CONFIGURE_DEPENDS stepzero/cli/*.cpp)
list(FILTER CLI_SOURCES EXCLUDE REGEX "cli/main.cpp")
# All but main, so that a program of the benchmarks can run many command lines (bench/serve.cpp).
add_library(stepzero_cli OBJECT ${CLI_SOURCES})
list(FILTER CLI_SOURCES EXCLUDE REGEX "cli/explorer.cpp")  # alone: it holds the page
compile_together(cli ${CLI_SOURCES})
set_source_files_properties(${PROJECT_SOURCE_DIR}/stepzero/cli/explorer.cpp PROPERTIES
  OBJECT_DEPENDS ${PROJECT_SOURCE_DIR}/web/explorer.html COMPILE_DEFINITIONS "STEPZERO_EXPLORER=\"${PROJECT_SOURCE_DIR}/web/explorer.html\"")
target_link_libraries(stepzero_cli PUBLIC stepzero_claims stepzero_lib CLI11::CLI11 PRIVATE stepzero_options)
target_precompile_headers(stepzero_cli PRIVATE <functional> <map> <string> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp> <CLI/CLI.hpp>)
target_compile_options(stepzero_cli PRIVATE $<$<CONFIG:Release>:-O1>)  # compiles in three quarters of the time; what is fast lies in the library
target_compile_definitions(stepzero_cli PRIVATE STEPZERO_VERSION="${PROJECT_VERSION}")
if(STEPZERO_MPI AND NOT STEPZERO_SANITIZE AND NOT STEPZERO_PORTABLE)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    target_compile_definitions(stepzero_cli PRIVATE STEPZERO_MPI OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    target_link_libraries(stepzero_cli PUBLIC MPI::MPI_CXX)
  endif()
endif()
add_executable(stepzero stepzero/cli/main.cpp)
target_link_libraries(stepzero PRIVATE stepzero_cli stepzero_options)
# The manual page and the completions, told by the program about itself.
set(SHELL_FILES ${PROJECT_BINARY_DIR}/share)
add_custom_command(TARGET stepzero POST_BUILD VERBATIM
  COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:stepzero> -DOUT=${SHELL_FILES} -P ${PROJECT_SOURCE_DIR}/cmake/shell.cmake)
