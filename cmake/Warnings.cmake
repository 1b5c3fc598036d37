# Warnings are errors in our own code.
add_library(kvb_warnings INTERFACE)
add_library(kvb::warnings ALIAS kvb_warnings)
target_compile_options(kvb_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wno-sign-conversion -Werror
  $<$<COMPILE_LANGUAGE:OBJC,OBJCXX>:-Werror=objc-property-implementation>)
if(KVB_SANITIZE)
  add_compile_options(-fsanitize=${KVB_SANITIZE} -fno-omit-frame-pointer -g -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${KVB_SANITIZE} -shared-libsan)
endif()
