# cmake -DOUTPUT=FILE -DNAMESPACE=A::B "-DFILES=PATH;..." -P embed.cmake: writes a C++ file with a std::string_view per file,
# called after it (page.css: page_css).
set(text "// Written by cmake/embed.cmake.\n#include <string_view>\n\nnamespace ${NAMESPACE} {\n")
foreach(path ${FILES})
  cmake_path(GET path FILENAME name)
  string(MAKE_C_IDENTIFIER ${name} name)
  file(READ ${path} bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND text "static const unsigned char bytes_of_${name}[] = {${bytes}};\n"
                     "extern const std::string_view ${name};\n"
                     "const std::string_view ${name}{reinterpret_cast<const char*>(bytes_of_${name}), ${size}};\n")
endforeach()
file(WRITE ${OUTPUT} "${text}}  // namespace ${NAMESPACE}\n")
