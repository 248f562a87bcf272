// Trains the quickstart run with the real program, in its own directory, and prints a newcomer's
// result: time, validation bits per byte, the sample. Needs data/quickstart (./dev bench makes it).
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

namespace fs = std::filesystem;

struct Outcome {
  double bits_per_byte = 0.0;
  double tokens_per_second = 0.0;  ///< Over all steps.
};

Outcome read_metrics(const fs::path& file) {
  Outcome outcome;
  std::ifstream lines(file);
  std::string line;
  double seconds_per_token = 0.0;
  int steps = 0;
  while (std::getline(lines, line)) {
    const auto entry = nlohmann::json::parse(line);
    outcome.bits_per_byte = entry.value("val_bits_per_byte", outcome.bits_per_byte);
    if (const double speed = entry.value("tokens_per_second", 0.0); speed > 0.0) {
      seconds_per_token += 1.0 / speed;
      ++steps;
    }
  }
  outcome.tokens_per_second = steps > 0 ? steps / seconds_per_token : 0.0;
  return outcome;
}

std::string sample_of(const fs::path& output) {
  std::ifstream file(output);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto begin = text.find("sample:");
  return begin == std::string::npos ? "(no sample)" : text.substr(begin);
}

}  // namespace

int main() {
  const fs::path place = fs::temp_directory_path() / fmt::format("quickstart_bench_{}", getpid());
  fs::create_directories(place);
  const fs::path output = place / "output.txt";
  const std::string command = fmt::format(
      "cd '{}' && '{}/actortrain' run configs/quickstart.toml --set 'run.dir=\"{}\"' > '{}' 2>&1",
      ACTORTRAIN_SOURCE_DIR, ACTORTRAIN_BINARY_DIR, place.string(), output.string());
  const auto begin = std::chrono::steady_clock::now();
  const int status = std::system(command.c_str());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fmt::print("the run failed; its output is {}\n", output.string());
    return 1;
  }
  const Outcome outcome = read_metrics(place / "quickstart" / "metrics.jsonl");
  fmt::print("{:<46} {:>10.1f}   (about 180 on 2 quiet cores)\n", "quickstart, seconds", seconds);
  fmt::print("{:<46} {:>10.0f}\n", "tokens per second", outcome.tokens_per_second);
  fmt::print("{:<46} {:>10.3f}   (target <= 2.3)\n", "validation bits per byte",
             outcome.bits_per_byte);
  fmt::print("{}\n", sample_of(output));
  fs::remove_all(place);
  return 0;
}
