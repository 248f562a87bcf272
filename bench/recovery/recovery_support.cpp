#include "bench/recovery/recovery_support.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace train::bench {

namespace fs = std::filesystem;

Words run_words(const Workplace& place, const std::string& name, const Words& keys) {
  Words words = {"run", ACTORTRAIN_SOURCE_DIR "/configs/quickstart.toml"};
  for (const std::string& key :
       joined(joined(place.keys(), keys), {fmt::format("run.name=\"{}\"", name)})) {
    words.insert(words.end(), {"--set", key});
  }
  return words;
}

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

pid_t find_worker(pid_t launcher, int rank) {
  const std::string option = fmt::format("--rank{0}{1}{0}", '\0', rank);
  std::error_code ended;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", launcher), ended)) {
    std::ifstream list(task.path() / "children");
    for (pid_t process = 0; list >> process;) {
      if (text_of(fmt::format("/proc/{}/cmdline", process)).find(option) != std::string::npos) {
        return process;
      }
    }
  }
  return 0;
}

pid_t worker_of(pid_t launcher, int rank) {
  const pid_t process = find_worker(launcher, rank);
  if (process == 0) {
    throw std::runtime_error(fmt::format("rank {} has no process", rank));
  }
  return process;
}

double percentile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  const double at = part * static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(at + 0.5)];
}

}  // namespace train::bench
