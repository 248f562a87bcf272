// Who may include whom: the arrows between folders, and where third-party headers may be seen.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy {
namespace {

struct Include {
  std::size_t line = 0;  // index
  std::string path;
  bool quoted = false;
};

std::vector<Include> includes_of(const SourceFile& file) {
  static const std::regex kInclude("^\\s*#\\s*include\\s*([\"<])([^\">]+)[\">].*");
  std::vector<Include> includes;
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    std::smatch match;
    if (file.lines[i].find("include") != std::string::npos &&
        std::regex_match(file.lines[i], match, kInclude)) {
      includes.push_back({i, match[2].str(), match[1].str() == "\""});
    }
  }
  return includes;
}

// What a folder may include besides itself: a whole folder ("storage/"), a part of one
// ("kernels/device/") or one file. tests/ may include everything.
const std::map<std::string, std::vector<std::string>>& allowed_includes() {
  static const std::map<std::string, std::vector<std::string>> kAllowed = {
      {"base", {}},
      {"configs", {"base/"}},
      {"kernels", {"base/"}},
      {"storage",
       {"base/", "configs/sections/data_section.hpp", "configs/sections/checkpoint_section.hpp"}},
      {"data",
       {"base/", "configs/", "storage/", "engine/command.hpp", "engine/lanes/lane_slot.hpp",
        "engine/objective/objective.hpp", "engine/objective/registry.hpp"}},
      {"engine",
       {"base/", "kernels/", "configs/sections/model_section.hpp",
        "configs/sections/optimizer_section.hpp", "configs/fields/optimizer_list.hpp",
        "configs/sections/objective_section.hpp", "configs/fields/objective_list.hpp",
        "configs/sections/data_section.hpp", "configs/sections/lora_section.hpp",
        "configs/sections/parallel_section.hpp"}},
      {"checkpoint",
       {"base/", "storage/", "engine/state_view.hpp", "engine/model/spec.hpp",
        "engine/model/tensor_map.hpp", "engine/model/weight_source.hpp",
        "configs/sections/checkpoint_section.hpp"}},
      {"run",
       {"base/", "configs/", "kernels/device/", "storage/", "data/", "engine/", "checkpoint/"}},
      {"actors",
       {"base/", "configs/", "kernels/device/", "storage/", "data/", "engine/", "checkpoint/",
        "run/"}},
      {"cli",
       {"base/", "configs/", "kernels/device/", "storage/", "data/", "engine/", "checkpoint/",
        "run/", "actors/"}}};
  return kAllowed;
}

bool may_include(const std::string& folder, const std::string& path) {
  if (folder == "tests" || folder == "bench" || folder_of(path) == folder) {
    return true;
  }
  const auto allowed = allowed_includes().find(folder);
  return allowed != allowed_includes().end() &&
         std::any_of(allowed->second.begin(), allowed->second.end(), [&](const std::string& entry) {
           return entry.ends_with('/') ? path.starts_with(entry) : path == entry;
         });
}

Findings check_arrows(const SourceTree& tree) {
  std::set<std::string> known;
  for (const SourceFile& file : tree) {
    known.insert(file.path);
  }
  Findings findings;
  for (const SourceFile& file : tree) {
    if (!file.is_code()) {
      continue;
    }
    for (const Include& include : includes_of(file)) {
      if (include.quoted && !known.contains(include.path)) {
        findings.push_back(
            finding(file, include.line,
                    fmt::format("\"{}\" is no file, seen from the repository root", include.path)));
      } else if (include.quoted && !may_include(folder_of(file.path), include.path)) {
        findings.push_back(
            finding(file, include.line,
                    fmt::format("{} may not include {}", folder_of(file.path), include.path)));
      }
    }
  }
  return findings;
}

struct Confinement {
  std::string header;                // Start of the included path.
  std::vector<std::string> allowed;  // Regular expressions of whole paths.
};

const std::vector<Confinement>& confinements() {
  static const std::vector<Confinement> kConfinements = {
      {"configs/run_config.hpp", {"(actors|bench|cli|configs|data/lanes|run|tests)/.*"}},
      {"caf/", {"(actors|bench|cli|tests)/.*"}},
      {"rocksdb/", {"storage/.*\\.cpp"}},
      {"toml++/", {"configs/.*\\.cpp"}},
      {"CLI/", {"cli/.*\\.cpp", "cli/command\\.hpp"}},
      {"boost/",
       {"actors/cluster/.*\\.cpp", "actors/cluster/network/(coroutines|secure_stream)\\.hpp",
        "cli/board/board_.*", "tests/support/processes/http_client\\.hpp"}},
      {"simdjson.h", {"cli/board/(run_metrics|watched_run)\\.cpp"}},
      {"catch2/", {"tests/.*"}},
      {"hwy/",
       {"kernels/.*", "bench/.*", "tests/support/devices/instruction_sets\\.hpp",
        "tests/kernels/functions_test\\.cpp"}},
      {"dnnl", {"bench/(steps/step_gemm|kernels/gemm_libraries)\\.cpp"}},
      {"gloo/", {"bench/network/transport_bench\\.cpp"}},
      {"openssl/",
       {"actors/cluster/network/.*\\.(cpp|hpp)", "engine/collective/peer_proof\\.cpp", "tests/.*"}},
      {"oneapi/", {}},
      {"spdlog/", {"base/.*\\.cpp"}},
      {"cuda", {".*\\.cuh?", "kernels/device/.*\\.cpp", "kernels/.*_cuda\\.cpp"}},
      {"cublas", {"kernels/gemm/matmul_cuda\\.cpp"}},
      {"nccl", {"kernels/device/nccl_cuda\\.cpp", "tests/cuda_emulation/nccl/.*\\.cpp"}}};
  return kConfinements;
}

Findings check_confinements(const SourceTree& tree) {
  Findings findings;
  for (const SourceFile& file : tree) {
    if (!file.is_code()) {
      continue;
    }
    for (const Include& include : includes_of(file)) {
      for (const Confinement& rule : confinements()) {
        const bool here =
            !include.path.starts_with(rule.header) ||  // regular expressions are slow
            std::any_of(rule.allowed.begin(), rule.allowed.end(), [&](const std::string& text) {
              return std::regex_match(file.path, std::regex(text));
            });
        if (!here) {
          findings.push_back(finding(
              file, include.line,
              fmt::format("{} belongs to {} alone", include.path, fmt::join(rule.allowed, ", "))));
        }
      }
      if (include.path.ends_with(".cuh") && !file.path.ends_with(".cu") &&
          !file.path.ends_with(".cuh")) {
        findings.push_back(finding(file, include.line, "a .cuh belongs to .cu files alone"));
      }
    }
  }
  return findings;
}

// Cycles of includes, each reported at the file that closes it.
Findings check_cycles(const SourceTree& tree) {
  std::map<std::string, const SourceFile*> by_path;
  for (const SourceFile& file : tree) {
    by_path[file.path] = &file;
  }
  enum class Mark : unsigned char { open, closed };
  std::map<std::string, Mark> marks;
  Findings findings;
  const std::function<void(const SourceFile&)> visit = [&](const SourceFile& file) {
    marks[file.path] = Mark::open;
    for (const Include& include : includes_of(file)) {
      const auto next = by_path.find(include.path);
      if (!include.quoted || next == by_path.end()) {
        continue;
      }
      const auto mark = marks.find(include.path);
      if (mark == marks.end()) {
        visit(*next->second);
      } else if (mark->second == Mark::open) {
        findings.push_back(
            finding(file, include.line, fmt::format("{} includes this file", include.path)));
      }
    }
    marks[file.path] = Mark::closed;
  };
  for (const SourceFile& file : tree) {
    // Kernel sources include themselves once per instruction set, on purpose.
    if (file.is_header() && !marks.contains(file.path)) {
      visit(file);
    }
  }
  return findings;
}

// Directory of a file.
std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// True if one of two directories is the parent of the other.
bool is_own_parent(const std::string& one, const std::string& other) {
  return directory_of(one) == other || directory_of(other) == one;
}

// Circles of directories below the top folders, a directory and its own parent not counted: from
// which directory others are reached through includes, and lead back.
Findings check_directories(const SourceTree& tree) {
  std::map<std::string, std::set<std::string>> included;
  std::map<std::pair<std::string, std::string>, std::pair<const SourceFile*, std::size_t>> places;
  std::set<std::string> known;
  for (const SourceFile& file : tree) {
    known.insert(file.path);
  }
  for (const SourceFile& file : tree) {
    if (!file.is_code() || folder_of(file.path) == "tests" || folder_of(file.path) == "bench") {
      continue;
    }
    const std::string from = directory_of(file.path);
    for (const Include& include : includes_of(file)) {
      const std::string to = directory_of(include.path);
      if (include.quoted && known.contains(include.path) && to != from &&
          !is_own_parent(from, to)) {
        included[from].insert(to);
        places.try_emplace({from, to}, &file, include.line);
      }
    }
  }
  // All that a directory reaches.
  std::map<std::string, std::set<std::string>> reached;
  const std::function<void(const std::string&, std::set<std::string>&)> reach =
      [&](const std::string& from, std::set<std::string>& found) {
        for (const std::string& next : included[from]) {
          if (found.insert(next).second) {
            reach(next, found);
          }
        }
      };
  Findings findings;
  for (const auto& [way, place] : places) {
    const auto& [from, to] = way;
    if (!reached.contains(to)) {
      reach(to, reached[to]);
    }
    if (reached[to].contains(from)) {
      findings.push_back(finding(*place.first, place.second,
                                 fmt::format("{} is included by {}, and leads back", to, from)));
    }
  }
  return findings;
}

// A product unit: a source of the program, not of its tests and benchmarks.
bool is_product_unit(const SourceFile& file) {
  const std::string folder = folder_of(file.path);
  return folder != "tests" && folder != "bench" &&
         (file.path.ends_with(".cpp") || file.path.ends_with(".cu"));
}

// Number of product units that each file reaches through includes: those that a change recompiles.
std::map<std::string, std::size_t> reached_units(const SourceTree& tree) {
  std::map<std::string, std::vector<std::string>> included;
  for (const SourceFile& file : tree) {
    if (file.is_code()) {
      for (const Include& include : includes_of(file)) {
        included[file.path].push_back(include.path);
      }
    }
  }
  std::map<std::string, std::size_t> units;
  const std::function<void(const std::string&, std::set<std::string>&)> visit =
      [&](const std::string& path, std::set<std::string>& seen) {
        for (const std::string& next : included[path]) {
          if (seen.insert(next).second) {
            visit(next, seen);
          }
        }
      };
  for (const SourceFile& file : tree) {
    if (is_product_unit(file)) {
      std::set<std::string> seen;
      visit(file.path, seen);
      for (const std::string& path : seen) {
        ++units[path];
      }
    }
  }
  return units;
}

// A kernel's params or its line in the list of kernels is changed often: few units recompile.
Findings check_reach(const SourceTree& tree) {
  constexpr std::size_t most_of_params = 30;
  constexpr std::size_t most_of_list = 60;  // Every caller of a kernel.
  static const std::regex kParams("^struct \\w+Params\\b.*\\{");
  const std::map<std::string, std::size_t> units = reached_units(tree);
  Findings findings;
  for (const SourceFile& file : tree) {
    if (!file.path.starts_with("kernels/") || !file.path.ends_with(".hpp")) {
      continue;
    }
    const auto params =
        std::find_if(file.lines.begin(), file.lines.end(), [](const std::string& line) {
          return line.starts_with("struct ") && std::regex_match(line, kParams);
        });
    const bool is_list = file.name() == "kernel_list.hpp";
    if (params == file.lines.end() && !is_list) {
      continue;
    }
    const std::size_t most = is_list ? most_of_list : most_of_params;
    const auto found = units.find(file.path);
    if (found != units.end() && found->second > most) {
      findings.push_back(finding(file, 0,
                                 fmt::format("{} sources of the program include this, at most {}: "
                                             "declare its structs in headers, without an include",
                                             found->second, most)));
    }
  }
  return findings;
}

TEST_CASE("include: a change of a kernel's params or of the list recompiles few units",
          "[tidy][include]") {
  const Findings findings = check_reach(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("include: no directories include each other in a circle", "[tidy][include]") {
  const Findings findings = check_directories(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("include: the arrows between folders point one way", "[tidy][include]") {
  const Findings findings = check_arrows(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("include: third-party headers stay where they belong", "[tidy][include]") {
  const Findings findings = check_confinements(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("include: no headers include each other in a circle", "[tidy][include]") {
  const Findings findings = check_cycles(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

// The findings of `rule` on one file with one include; what is included exists.
template <class Rule>
Findings judge(Rule rule, const std::string& path, const std::string& include) {
  SourceTree tree = {make_file(path, "#include " + include + "\n")};
  if (include.front() == '"') {
    tree.push_back(make_file(include.substr(1, include.size() - 2), "\n"));
  }
  return rule(tree);
}

TEST_CASE("include: every wrong arrow is found", "[tidy][include]") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"base/a.hpp", "\"configs/sections/run_section.hpp\""},
      {"base/a.cpp", "\"storage/files/atomic_file.hpp\""},
      {"configs/a.cpp", "\"storage/a.hpp\""},
      {"kernels/a.cpp", "\"engine/parameter.hpp\""},
      {"kernels/a.cpp", "\"configs/sections/model_section.hpp\""},
      {"storage/a.cpp", "\"configs/sections/model_section.hpp\""},
      {"storage/a.cpp", "\"engine/state_view.hpp\""},
      {"engine/a.cpp", "\"configs/sections/checkpoint_section.hpp\""},
      {"engine/a.cpp", "\"storage/a.hpp\""},
      {"engine/a.cpp", "\"actors/a.hpp\""},
      {"checkpoint/a.cpp", "\"engine/model/model.hpp\""},
      {"checkpoint/a.cpp", "\"kernels/device/buffer.hpp\""},
      {"checkpoint/a.cpp", "\"actors/a.hpp\""},
      {"run/a.cpp", "\"actors/a.hpp\""},
      {"run/a.cpp", "\"kernels/backend.hpp\""},
      {"checkpoint/a.cpp", "\"run/a.hpp\""},
      {"actors/a.cpp", "\"kernels/gemm/matmul.hpp\""},
      {"actors/a.cpp", "\"kernels/backend.hpp\""},
      {"actors/a.cpp", "\"cli/options.hpp\""},
      {"cli/a.cpp", "\"kernels/backend.hpp\""},
      {"actors/a.cpp", "\"tests/support/a.hpp\""}};
  for (const auto& [path, include] : wrong) {
    INFO(path << " includes " << include);
    CHECK(judge(check_arrows, path, include).size() == 1);
  }
  const std::vector<std::pair<std::string, std::string>> right = {
      {"configs/a.cpp", "\"base/result.hpp\""},
      {"storage/a.cpp", "\"configs/sections/data_section.hpp\""},
      {"engine/a.cpp", "\"kernels/backend.hpp\""},
      {"checkpoint/a.cpp", "\"engine/state_view.hpp\""},
      {"run/a.cpp", "\"checkpoint/a.hpp\""},
      {"actors/a.cpp", "\"run/a.hpp\""},
      {"actors/a.cpp", "\"kernels/device/stream.hpp\""},
      {"cli/a.cpp", "\"actors/training_system.hpp\""},
      {"tests/a.cpp", "\"kernels/gemm/matmul.hpp\""}};
  for (const auto& [path, include] : right) {
    INFO(path << " includes " << include);
    CHECK(judge(check_arrows, path, include).empty());
  }
  const SourceTree lost = {make_file("engine/a.cpp", "#include \"a.hpp\"\n")};
  CHECK(check_arrows(lost) ==
        Findings{"engine/a.cpp:1: \"a.hpp\" is no file, seen from the repository root"});
}

TEST_CASE("include: every stray third-party header is found", "[tidy][include]") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"engine/a.hpp", "<caf/all.hpp>"},
      {"storage/a.hpp", "<rocksdb/db.h>"},
      {"checkpoint/a.cpp", "<rocksdb/db.h>"},
      {"configs/a.hpp", "<toml++/toml.h>"},
      {"actors/a.cpp", "<toml++/toml.h>"},
      {"actors/a.cpp", "<CLI/CLI.hpp>"},
      {"actors/train/a.cpp", "<openssl/ssl.h>"},
      {"actors/cluster/recovery/a.cpp", "<openssl/ssl.h>"},
      {"actors/train/a.cpp", "<boost/asio.hpp>"},
      {"checkpoint/a.cpp", "<caf/actor.hpp>"},
      {"run/a.hpp", "<caf/actor.hpp>"},
      {"run/a.cpp", "<boost/asio.hpp>"},
      {"engine/a.cpp", "<cuda_runtime.h>"},
      {"engine/a.cpp", "<hwy/highway.h>"},
      {"engine/a.cpp", "<oneapi/dnnl/dnnl.h>"},
      {"storage/a.cpp", "<spdlog/spdlog.h>"},
      {"engine/a.cpp", "<catch2/catch.hpp>"},
      {"engine/a.cpp", "\"configs/run_config.hpp\""},
      {"engine/collective/tcp_link.cpp", "<gloo/context.h>"},
      {"engine/a.cpp", "<openssl/ssl.h>"},
      {"kernels/a.cpp", "\"kernels/reduce.cuh\""},
      {"kernels/a.cpp", "<cuda_runtime.h>"},
      {"kernels/a.cu", "<cublasLt.h>"}};
  for (const auto& [path, include] : wrong) {
    INFO(path << " includes " << include);
    CHECK(judge(check_confinements, path, include).size() == 1);
  }
  CHECK(judge(check_confinements, "storage/a.cpp", "<rocksdb/db.h>").empty());
  CHECK(judge(check_confinements, "cli/commands/a.cpp", "<CLI/CLI.hpp>").empty());
  CHECK(judge(check_confinements, "cli/a.cpp", "<caf/all.hpp>").empty());
  CHECK(judge(check_confinements, "actors/cluster/network/a.cpp", "<openssl/ssl.h>").empty());
  CHECK(judge(check_confinements, "actors/a.cpp", "\"configs/run_config.hpp\"").empty());
}

TEST_CASE("include: a circle of directories is found, however long", "[tidy][include]") {
  const auto file = [](const std::string& path, const std::string& included) {
    return make_file(path, "#include \"" + included + "\"\n");
  };
  const SourceTree circle = {
      file("engine/a/a.cpp", "engine/b/b.hpp"), file("engine/b/b.hpp", "engine/c/c.hpp"),
      file("engine/c/c.cpp", "engine/a/other.hpp"), make_file("engine/c/c.hpp", "\n"),
      make_file("engine/a/other.hpp", "\n")};
  CHECK(check_directories(circle).size() == 3);
  const SourceTree parent = {file("engine/a.cpp", "engine/a/inner.hpp"),
                             file("engine/a/inner.hpp", "engine/a.hpp"),
                             make_file("engine/a.hpp", "\n")};
  CHECK(check_directories(parent).empty());
  const SourceTree one_way = {file("engine/a/a.cpp", "engine/b/b.hpp"),
                              file("engine/c/c.cpp", "engine/b/b.hpp"),
                              make_file("engine/b/b.hpp", "\n")};
  CHECK(check_directories(one_way).empty());
}

TEST_CASE("include: a header of kernels that too many units reach is found", "[tidy][include]") {
  const auto tree_of = [](const std::string& header, const std::string& text, std::size_t units,
                          const std::string& folder) {
    SourceTree tree = {make_file(header, text),
                       make_file("engine/a.hpp", "#include \"" + header + "\"\n")};
    for (std::size_t i = 0; i < units; ++i) {
      tree.push_back(
          make_file(fmt::format("{}/a{}.cpp", folder, i), "#include \"engine/a.hpp\"\n"));
    }
    return tree;
  };
  const std::string params = "struct ScaleParams {\n};\n";
  CHECK(check_reach(tree_of("kernels/a/scale.hpp", params, 31, "engine")) ==
        Findings{"kernels/a/scale.hpp:1: 31 sources of the program include this, at most 30: "
                 "declare its structs in headers, without an include"});
  CHECK(check_reach(tree_of("kernels/a/scale.hpp", params, 30, "engine")).empty());
  CHECK(check_reach(tree_of("kernels/a/scale.hpp", params, 31, "tests")).empty());
  CHECK(check_reach(tree_of("kernels/a/scale.hpp", "struct ScaleParams;\n", 31, "run")).empty());
  CHECK(check_reach(tree_of("kernels/kernel_list.hpp", "\n", 61, "engine")).size() == 1);
  CHECK(check_reach(tree_of("kernels/kernel_list.hpp", "\n", 60, "engine")).empty());
}

TEST_CASE("include: a circle of headers is found", "[tidy][include]") {
  const SourceTree circle = {make_file("engine/a.hpp", "#include \"engine/b.hpp\"\n"),
                             make_file("engine/b.hpp", "#include \"engine/c.hpp\"\n"),
                             make_file("engine/c.hpp", "#include \"engine/a.hpp\"\n")};
  CHECK(check_cycles(circle) == Findings{"engine/c.hpp:1: engine/a.hpp includes this file"});
  const SourceTree diamond = {
      make_file("engine/a.hpp", "#include \"engine/b.hpp\"\n#include \"engine/c.hpp\"\n"),
      make_file("engine/b.hpp", "#include \"engine/c.hpp\"\n"), make_file("engine/c.hpp", "\n")};
  CHECK(check_cycles(diamond).empty());
}

}  // namespace
}  // namespace train::tidy
