# cmake -DOUTPUT=FILE.cpp -DFILES="/path|type|file;..." -P EmbedFiles.cmake
# A source that holds files as arrays: cli/board/board_request.hpp says what for.
set(arrays "")
set(rows "")
set(number 0)
foreach(entry IN LISTS FILES)
  string(REPLACE "|" ";" parts "${entry}")
  list(GET parts 0 path)
  list(GET parts 1 type)
  list(GET parts 2 file)
  file(READ "${file}" content HEX)
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," content "${content}")
  string(APPEND arrays "constexpr char kFile${number}[] = {${content}};\n")
  string(APPEND rows "    {\"${path}\", \"${type}\", {kFile${number}, sizeof kFile${number}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"cli/board/board_request.hpp\"

namespace train::cli {
namespace {

${arrays}
constexpr BoardFile kFiles[] = {
${rows}};

}  // namespace

const BoardFile* find_board_file(std::string_view path) {
  for (const BoardFile& file : kFiles) {
    if (file.path == path) {
      return &file;
    }
  }
  return nullptr;
}

}  // namespace train::cli
")
