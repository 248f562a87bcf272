#pragma once

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/disks/temp_directory.hpp"

namespace train::test {

/// Directory that looks like a run's, with content harmful to readers.
struct HostileRun {
  std::string name;
  std::string said;  ///< Required text of its status.
};

/// Makes the hostile runs in `folder`; links lead to `outside`, where each file holds "secret".
inline std::vector<HostileRun> make_hostile_runs(const std::filesystem::path& folder,
                                                 const std::filesystem::path& outside) {
  namespace fs = std::filesystem;
  std::vector<HostileRun> made;
  const auto run = [&](const std::string& name, const std::string& said) {
    fs::create_directories(folder / name);
    write_bytes(folder / name / "config.toml", "x");
    made.push_back({name, said});
    return folder / name;
  };
  const std::string status = R"({"format":"actortrain status","version":1,)";
  const std::string over = status + R"("outcome":{"exit_code":0,"text":"x"},)";
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  write_bytes(run("wrong step", "step is no number") / "status.json", over + R"("step":[1]})");
  write_bytes(run("wrong ranks", "ranks is no list") / "status.json", over + R"("ranks":7})");
  write_bytes(run("wrong save", "saved is no object") / "status.json", over + R"("saved":[]})");
  write_bytes(run("huge number", "steps is no number") / "status.json", over + R"("steps":1e300})");
  write_bytes(run("deep status", "nested deeper") / "status.json", status + "\"a\":" + deep + "}");
  write_bytes(run("no text", "no JSON") / "status.json", status + "\"a\":\"\xff\xfe\"}");
  write_bytes(run("large status", "above its limit") / "status.json", "");
  fs::resize_file(folder / "large status/status.json", std::uint64_t{1} << 40U);
  REQUIRE(::mkfifo((run("pipe", "not a regular file") / "status.json").c_str(), 0600) == 0);
  fs::create_directory(run("directory", "not a regular file") / "status.json");

  const fs::path lines = run("hostile lines", "events.jsonl: ");
  write_bytes(lines / "status.json", status + R"("step":1,"phase":"running"})");
  write_bytes(lines / "events.jsonl", "{\"a\":" + deep + "}\n" + std::string(200'000, 'x') +
                                          "\n\xff\xfe\n{\"event\":\"" + std::string(100, 'y') +
                                          "\"}\n");
  write_bytes(lines / "metrics.jsonl", "{\"step\":1,\"loss\":" + deep +
                                           "}\n{\"step\":1e300,\"loss\":1}\n"
                                           "{\"step\":1,\"loss\":1e300,\"" +
                                           std::string(1000, 'k') + "\":1}\n");
  const fs::path endless = run("endless files", "no status yet");
  for (const char* file : {"events.jsonl", "metrics.jsonl"}) {
    write_bytes(endless / file, "");
    fs::resize_file(endless / file, std::uint64_t{1} << 40U);
  }
  fs::create_directories(outside);
  for (const char* file : {"config.toml", "status.json", "events.jsonl", "metrics.jsonl"}) {
    write_bytes(outside / file, over + "\"run\":\"secret\",\"step\":1,\"secret\":424242}\n");
  }
  fs::create_directory_symlink(outside, folder / "linked run");
  made.push_back({"linked run", "a link leads out of"});
  const fs::path files = run("linked files", "a link leads out of");
  for (const char* file : {"status.json", "events.jsonl", "metrics.jsonl"}) {
    fs::create_symlink(outside / file, files / file);
  }
  return made;
}

}  // namespace train::test
