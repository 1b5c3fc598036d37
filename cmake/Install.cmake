# The C++ package: headers, archives, on Linux the simulator, and what find_package(kvbacking) reads. Component cpp, which the
# Python wheel (component python) leaves out. Programs link kvbacking::kvbacking; kvbacking::core alone needs no framework.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvbacking)

set_target_properties(kvbacking_coreml PROPERTIES EXPORT_NAME kvbacking)
set_target_properties(kvbacking_core PROPERTIES EXPORT_NAME core)
set_target_properties(kvb_platform_link PROPERTIES EXPORT_NAME platform)
set(exported kvbacking_core kvbacking_coreml kvb_platform_link)
if(TARGET coreml_simulator)
  set_target_properties(coreml_simulator PROPERTIES EXPORT_NAME simulator)
  list(APPEND exported coreml_simulator)
endif()

install(TARGETS ${exported} EXPORT kvbackingTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(DIRECTORY src/native/include/kvbacking DESTINATION include COMPONENT cpp FILES_MATCHING PATTERN "*.h")
install(EXPORT kvbackingTargets NAMESPACE kvbacking:: DESTINATION ${package_dir} COMPONENT cpp)
configure_package_config_file(cmake/kvbackingConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/kvbackingConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/kvbackingConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kvbackingConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/kvbackingConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT cpp)
