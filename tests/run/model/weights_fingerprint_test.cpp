// What tells the weights that a run begins with from others.

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "run/model/model_files.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::run {
namespace {

namespace fs = std::filesystem;

/// A model of two files, and a run that begins with it.
struct WeightsSite {
  test::TempDirectory directory;
  fs::path model = directory.path() / "model";
  fs::path run = directory.path() / "run";
  std::string first = std::string((std::size_t{3} << 20U) + 17, 'a');
  configs::RunConfig config;

  WeightsSite() {
    fs::create_directory(model);
    fs::create_directory(run);
    config.model.from = model.string();
    write("one.safetensors", first);
    write("two.safetensors", "b");
  }
  void write(const char* name, const std::string& text) const {
    std::ofstream(model / name, std::ios::binary) << text;
  }
  [[nodiscard]] std::string fingerprint() const {
    const auto made = weights_fingerprint(config, run);
    REQUIRE(made.ok());
    return *made;
  }
  [[nodiscard]] std::string fingerprint_anew() const {
    fs::remove(run / "weights.digest");
    return fingerprint();
  }
};

}  // namespace

TEST_CASE("weights fingerprint: every byte of every file counts", "[run][weights_fingerprint]") {
  WeightsSite site;
  const std::string before = site.fingerprint();
  CHECK(site.fingerprint_anew() == before);
  for (const std::size_t at : {std::size_t{0}, (std::size_t{1} << 20U) - 1, std::size_t{1} << 20U,
                               std::size_t{1234567}, std::size_t{2345678}, site.first.size() - 1}) {
    CAPTURE(at);
    std::string changed = site.first;
    changed[at] = 'c';
    site.write("one.safetensors", changed);
    CHECK(site.fingerprint_anew() != before);
  }
  site.write("one.safetensors", site.first);
  CHECK(site.fingerprint_anew() == before);
  site.write("config.json", "no weights");
  CHECK(site.fingerprint_anew() == before);
  fs::rename(site.model / "two.safetensors", site.model / "three.safetensors");
  CHECK(site.fingerprint_anew() != before);
}

TEST_CASE("weights fingerprint: it is read once, and anew when a file has changed",
          "[run][weights_fingerprint]") {
  WeightsSite site;
  const fs::path file = site.model / "one.safetensors";
  const std::string before = site.fingerprint();
  const auto time = fs::last_write_time(file);
  std::string changed = site.first;
  changed[5] = 'c';
  site.write("one.safetensors", changed);
  fs::last_write_time(file, time);  // as nobody does by accident
  CHECK(site.fingerprint() == before);
  fs::last_write_time(file, time + std::chrono::seconds(1));
  const std::string after = site.fingerprint();
  CHECK(after != before);
  std::ofstream(site.run / "weights.digest") << "torn";
  CHECK(site.fingerprint() == after);
}

TEST_CASE("weights fingerprint: drawn weights go by their seed, lost ones by nothing",
          "[run][weights_fingerprint]") {
  WeightsSite site;
  fs::remove_all(site.model);
  CHECK(site.fingerprint().empty());
  site.config.model.from.clear();
  site.config.run.seed = 7;
  CHECK(site.fingerprint() == "seed 7");
}

}  // namespace train::run
