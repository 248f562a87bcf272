#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

// Parts shared by the rows of bench_ranks: a directory with tokens, runs of the real program,
// numbers.
namespace train::bench {

using Words = std::vector<std::string>;

[[nodiscard]] Words joined(Words first, const Words& second);

/// Repeated measurements of one quantity.
struct Values {
  std::vector<double> all;

  void add(double value) { all.push_back(value); }
  [[nodiscard]] double median() const;
  [[nodiscard]] double least() const;
  [[nodiscard]] double most() const;
  /// "12.3 (11.9 to 12.8)".
  [[nodiscard]] std::string text(int digits) const;
};

/// Prints one line: a name and a value; or also a target, and whether it is met.
void print_result(const std::string& what, const std::string& value);
void print_at_least(const std::string& what, const Values& values, double target);
void print_at_most(const std::string& what, const Values& values, double target);

/// Paths of the files that a benchmark runs or reads; by default those of this build.
struct BenchPaths {
  std::string program = ACTORTRAIN_BINARY_DIR "/actortrain";
  std::string configs = ACTORTRAIN_SOURCE_DIR "/configs";
  std::string peers = ACTORTRAIN_SOURCE_DIR "/bench/peers";
};

/// Temporary directory with synthetic tokens, removed at the end.
class Workplace {
 public:
  explicit Workplace(BenchPaths paths = {});
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  [[nodiscard]] const BenchPaths& paths() const { return paths_; }
  /// Overrides of configs/quickstart.toml that read these tokens and save and evaluate only at the
  /// end; one thread per rank.
  [[nodiscard]] Words keys() const;

 private:
  std::filesystem::path directory_;
  BenchPaths paths_;
};

/// Model, and shape of its lanes.
struct Shape {
  const char* name;
  Words keys;
};
[[nodiscard]] Shape quickstart_shape();  ///< 4 layers x 128, lanes of 4 x 256 tokens.
[[nodiscard]] Shape wide_shape();        ///< 12 layers x 768, few tokens, lanes of 256.
[[nodiscard]] Shape gpt2_shape();        ///< 124 M weights, tied, lanes of 256 tokens.

/// Training run by the real program.
struct RunSpec {
  Words keys;  ///< After Workplace::keys().
  bool profile = false;
  /// Prefixes of each node's launcher (namespace, variables); empty: one node.
  std::vector<std::string> node_prefixes = {};
  /// Number of independent runs at the same time: their total tokens per second is the machine's
  /// limit for that many ranks.
  int copies = 1;
};

struct RunOutcome {
  double step_seconds = 0.0;  ///< Mean, after the first two steps.
  double tokens_per_second = 0.0;
  std::optional<nlohmann::json> profile;  ///< Parsed summary.json, if the run wrote one.
};

/// Blocks. Throws std::runtime_error with the end of the program's output if it fails.
[[nodiscard]] RunOutcome run_program(const Workplace& place, const RunSpec& spec);

/// Runs each spec once, then each again, `times` times in all; by spec.
[[nodiscard]] std::vector<std::vector<RunOutcome>> run_alternately(
    const Workplace& place, const std::vector<RunSpec>& specs, int times);

}  // namespace train::bench
