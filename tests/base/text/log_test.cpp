#include "base/text/log.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/harness/error_output_file.hpp"

namespace train {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_CASE("log: every line reaches the standard error whole, from any thread", "[base][log]") {
  const auto path = std::filesystem::temp_directory_path() /
                    ("actortrain_log_test_" + std::to_string(::getpid()) + ".log");
  std::filesystem::remove(path);
  const test::ErrorOutputFile capture(path);
  log_info("first_line braces={not_a_format}");
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([writer] {
      for (int line = 0; line < 50; ++line) {
        log_info("written writer=" + std::to_string(writer) + " line=" + std::to_string(line) +
                 " end");
      }
    });
  }
  for (std::thread& writer : writers) {
    writer.join();
  }
  const std::string text = read(path);
  CHECK(text.find("first_line braces={not_a_format}\n") != std::string::npos);
  for (int writer = 0; writer < 4; ++writer) {
    for (int line = 0; line < 50; ++line) {
      const std::string wanted =
          "written writer=" + std::to_string(writer) + " line=" + std::to_string(line) + " end\n";
      REQUIRE(text.find(wanted) != std::string::npos);
    }
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace train
