// Names of constants: kPascalCase in namespaces and in classes that are no templates.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy {
namespace {

std::size_t indentation(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

bool begins_with_any(std::string_view line, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return line.starts_with(word); });
}

// Drops `word` from the beginning of `text`; false if it does not begin so.
bool drop(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) {
    return false;
  }
  text.remove_prefix(word.size());
  return true;
}

// The name of the constant that a formatted line declares; empty: it declares none.
std::string_view constant_of(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  while (drop(line, "inline ") || drop(line, "static ") || drop(line, "extern ")) {
  }
  if (!drop(line, "constexpr ") && !drop(line, "const ")) {
    return {};
  }
  const std::size_t length = line.find_first_of("={[;(");
  if (length == std::string_view::npos || line[length] == '(' || line.find("operator") < length) {
    return {};
  }
  std::string_view head = line.substr(0, length);
  head = head.substr(0, head.find_last_not_of(' ') + 1);
  const std::size_t first = head.find_last_of(" &*>");
  return first == std::string_view::npos ? std::string_view() : head.substr(first + 1);
}

bool is_constant_name(std::string_view name) {
  return name.size() > 1 && name[0] == 'k' &&
         (std::isupper(static_cast<unsigned char>(name[1])) != 0 ||
          std::isdigit(static_cast<unsigned char>(name[1])) != 0);
}

// The line that opens the scope of line `at`: the last one that is indented less, no label.
std::optional<std::size_t> scope_of(const SourceFile& file, std::size_t at) {
  const std::size_t level = indentation(file.lines[at]);
  for (std::size_t i = at; i-- > 0;) {
    const std::string& line = file.lines[i];
    const std::size_t own = indentation(line);
    const bool label =
        begins_with_any(std::string_view(line).substr(own), {"public:", "private:", "protected:"});
    if (!line.empty() && line.front() != '#' && !label && own < level) {
      return i;
    }
  }
  return std::nullopt;
}

// True if the declaration whose last line is `at` begins with template.
bool is_template(const SourceFile& file, std::size_t at) {
  while (at > 0 && !file.lines[at - 1].empty() && file.lines[at - 1].front() != '#' &&
         std::string_view(";}{").find(file.lines[at - 1].back()) == std::string_view::npos) {
    if (file.lines[at].find("template ") == indentation(file.lines[at])) {
      return true;
    }
    --at;
  }
  return file.lines[at].find("template ") == indentation(file.lines[at]);
}

// True if line `at` is a member of a class, none of whose enclosing classes is a template.
bool is_in_plain_class(const SourceFile& file, std::size_t at) {
  while (indentation(file.lines[at]) > 0) {
    const auto scope = scope_of(file, at);
    if (!scope) {
      return false;
    }
    at = *scope;
    const std::string_view line = file.lines[at];
    const std::string_view head = line.substr(indentation(file.lines[at]));
    if (!begins_with_any(head, {"struct ", "class "}) || is_template(file, at)) {
      return false;
    }
  }
  return true;
}

Findings check_constants(const SourceTree& tree) {
  Findings findings;
  for (const SourceFile& file : tree) {
    const std::string folder = folder_of(file.path);
    if (!file.is_code() || folder == "tests" || folder == "bench") {
      continue;
    }
    // Members of its classes follow from the instruction set, as those of templates from arguments.
    const bool of_instructions = file.path.ends_with("-inl.hpp") || file.contains("HWY_NAMESPACE");
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (!has_any(file.lines[i], {"const"})) {
        continue;
      }
      const bool outside = indentation(file.lines[i]) == 0;
      const bool member = has_any(file.lines[i], {" static constexpr "}) && !of_instructions;
      const std::string_view name = outside || member ? constant_of(file.lines[i]) : "";
      // CAF reads the name of an actor's state.
      if (name.empty() || is_constant_name(name) || (member && name == "name")) {
        continue;
      }
      if (outside || is_in_plain_class(file, i)) {
        findings.push_back(finding(file, i, fmt::format("{}: a constant is kPascalCase", name)));
      }
    }
  }
  return findings;
}

TEST_CASE("constant: names are kPascalCase in namespaces and plain classes", "[tidy][constant]") {
  const Findings findings = check_constants(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("constant: every wrong name is found", "[tidy][constant]") {
  const auto judge = [](const std::string& text, const std::string& path = "engine/a.hpp") {
    return check_constants({make_file(path, text)});
  };
  CHECK(judge("inline constexpr int most = 3;\n") ==
        Findings{"engine/a.hpp:1: most: a constant is kPascalCase"});
  CHECK(judge("const std::array<int, 2> sizes = {1, 2};\n").size() == 1);
  CHECK(judge("constexpr const char* texts[] = {\"a\"};\n").size() == 1);
  CHECK(judge("template <int dim>\nconstexpr int floats = 4 * dim;\n", "kernels/a.cu").size() == 1);
  CHECK(judge("class A final\n    : public B {\n private:\n  static constexpr int most = 3;\n};\n")
            .size() == 1);
  CHECK(judge("struct A {\n  struct B {\n    static constexpr int most = 3;\n  };\n};\n").size() ==
        1);
}

TEST_CASE("constant: other names are left alone", "[tidy][constant]") {
  const auto judge = [](const std::string& text, const std::string& path = "engine/a.cpp") {
    return check_constants({make_file(path, text)}).size();
  };
  CHECK(judge("constexpr int kMost = 3;\nconstexpr long kTime_ns = 3;\n") == 0);
  CHECK(judge("constexpr int most(int a) { return a; }\n") == 0);
  CHECK(judge("const Spec& spec_of(const Model& model) {\n") == 0);
  CHECK(judge("void f(int a,\n       int b) {\n  static constexpr int most = 3;\n}\n") == 0);
  CHECK(judge("template <int dim>\nstruct A {\n  static constexpr int rows = dim;\n};\n") == 0);
  CHECK(judge("template <>\nstruct A<64> {\n  static constexpr int rows = 2;\n};\n") == 0);
  CHECK(judge("struct State {\n  static constexpr const char* name = \"rank\";\n};\n") == 0);
  CHECK(judge("struct A {\n  static constexpr int lanes = HWY_LANES(float);\n};\n",
              "kernels/simd-inl.hpp") == 0);
  CHECK(judge("constexpr int most = 3;\n", "tests/a.cpp") == 0);
}

}  // namespace
}  // namespace train::tidy
