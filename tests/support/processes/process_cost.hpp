#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace train::test {

/// Resources used by a process so far, as counted by the kernel.
struct ProcessCost {
  std::uint64_t read_bytes = 0;  ///< Returned by read() and the like, also from memory.
  std::uint64_t written_bytes = 0;
  std::uint64_t peak_bytes = 0;  ///< Peak resident memory.
  double processor_s = 0.0;      ///< Processor time of all threads, in ticks of 10 ms.

  /// Difference from `before`; the peak is kept.
  ProcessCost operator-(const ProcessCost& before) const {
    return {.read_bytes = read_bytes - before.read_bytes,
            .written_bytes = written_bytes - before.written_bytes,
            .peak_bytes = peak_bytes,
            .processor_s = processor_s - before.processor_s};
  }
};

/// Reads the number behind `name` in a file of /proc; 0: there is none.
inline std::uint64_t proc_number(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::uint64_t number = 0;
    if (word == name && file >> number) {
      return number;
    }
  }
  return 0;
}

/// Zeros after its end.
inline ProcessCost cost_of(pid_t process) {
  const std::string directory = "/proc/" + std::to_string(process);
  ProcessCost cost{.read_bytes = proc_number(directory + "/io", "rchar:"),
                   .written_bytes = proc_number(directory + "/io", "wchar:"),
                   .peak_bytes = proc_number(directory + "/status", "VmHWM:") << 10U};
  std::ifstream stat(directory + "/stat");
  std::string text;
  std::getline(stat, text, ')');  // The name may contain blanks.
  constexpr int kBeforeUser = 11;
  for (int field = 0; field < kBeforeUser; ++field) {
    stat >> text;
  }
  double user = 0.0;
  double system = 0.0;
  if (stat >> user >> system) {
    cost.processor_s = (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  return cost;
}

/// Resets the peak.
inline void forget_peak_of(pid_t process) {
  std::ofstream("/proc/" + std::to_string(process) + "/clear_refs") << "5";
}

}  // namespace train::test
