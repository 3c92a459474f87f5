# The package: the library, its public headers and what find_package(stepzero) reads; the program, its manual page and completions.
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/stepzero)
install(TARGETS stepzero_lib EXPORT stepzero-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT stepzero-targets NAMESPACE stepzero:: DESTINATION ${package})
configure_package_config_file(cmake/stepzero-config.cmake.in ${PROJECT_BINARY_DIR}/stepzero-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/stepzero-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/stepzero-config.cmake ${PROJECT_BINARY_DIR}/stepzero-config-version.cmake cmake/dependencies.cmake
  DESTINATION ${package})
if(STEPZERO_PROGRAM)
  install(TARGETS stepzero RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${SHELL_FILES}/ DESTINATION ${CMAKE_INSTALL_DATADIR})
endif()
