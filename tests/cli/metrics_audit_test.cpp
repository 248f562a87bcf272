#include "cli/audit/run_audit.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <bit>
#include <catch2/catch.hpp>
#include <filesystem>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

#include "base/process/descriptor.hpp"
#include "storage/files/line_tail.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::cli::metrics_audit_test {
namespace {

using checkpoint::StepRecord;

struct Fixture {
  test::TempDirectory directory;
  std::map<std::int64_t, StepRecord> steps;
  MetricsFacts facts{.steps = &steps, .validation_losses = {{2, 0.75}}, .weights = 2};

  Fixture() {
    for (std::int64_t step = 1; step <= 3; ++step) {
      steps[step] = {.step = step, .loss = 0.1, .grad_norm = 1.5, .lr = 1e-3, .tokens = 8 * step};
    }
    steps[2].unit_grad_norms = {std::bit_cast<std::uint64_t>(0.5)};
    steps[2].tensor_digests = {~std::uint64_t{0}, 3, 77};
  }
  MetricsAudit audit(const std::string& text) const {
    test::write_bytes(directory / "metrics.jsonl", text);
    return audit_metrics(directory / "metrics.jsonl", facts);
  }
  /// The one problem.
  std::string problem(const std::string& text) const {
    const MetricsAudit found = audit(text);
    REQUIRE(found.problems.size() == 1);
    return found.problems.front();
  }
};

const std::string kOne =
    R"({"step":1,"loss":0.1,"grad_norm":1.5,"lr":0.001,"tokens":8,"tokens_per_second":1.0})"
    "\n";
const std::string kTwo =
    R"({"step":2,"loss":0.1,"grad_norm":1.5,"unit_grad_norm":{"head":0.5},"lr":0.001,"tokens":16,)"
    R"("weights_digest":"0000000000000002"})"
    "\n";
const std::string kEvaluation = R"({"event":"evaluation","step":2,"val_loss":0.75})"
                                "\n";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("metrics audit: lines that say what the journal does", "[actors][audit]") {
  const Fixture f;
  const MetricsAudit found = f.audit(kOne + kTwo + kEvaluation + with(kOne, "1", "4"));
  CHECK(found.problems.empty());
  CHECK(found.steps == 2);
  CHECK(found.newer == 1);
}

TEST_CASE("metrics audit: every number is compared to the bit", "[actors][audit]") {
  const Fixture f;
  CHECK(
      f.problem(with(kOne, "0.1", "0.10000000000000002")).find("metrics.jsonl:1: loss of step 1") ==
      0);
  CHECK(f.problem(kOne + with(kTwo, "1.5", "1.25")).find("metrics.jsonl:2: grad_norm of step 2") ==
        0);
  CHECK(f.problem(with(kOne, "0.001", "null")).find("lr of step 1 is null") != std::string::npos);
  CHECK(f.problem(with(kOne, "\"tokens\":8", "\"tokens\":9")).find("tokens of step 1") !=
        std::string::npos);
  CHECK(f.problem(with(kTwo, "{\"head\":0.5}", "{\"head\":0.25}")).find("unit_grad_norm of head") !=
        std::string::npos);
  CHECK(f.problem(with(kTwo, "0002", "0003")).find("weights_digest of step 2") !=
        std::string::npos);
  CHECK(f.problem(with(kEvaluation, "0.75", "0.5")).find("val_loss of step 2") !=
        std::string::npos);
}

TEST_CASE("metrics audit: lines that are none, or in the wrong place", "[actors][audit]") {
  Fixture f;
  CHECK(f.problem("{\"step\":1,").find("not a JSON object") != std::string::npos);
  CHECK(f.problem(kOne + kOne).find("step 1 comes after step 1") != std::string::npos);
  f.steps.erase(2);
  CHECK(f.problem(kTwo).find("step 2 is not in the journal") != std::string::npos);
  const MetricsAudit missing = audit_metrics(f.directory / "no.jsonl", f.facts);
  CHECK(missing.problems.size() == 1);
  f.steps.clear();
  CHECK(audit_metrics(f.directory / "no.jsonl", f.facts).problems.empty());
}

TEST_CASE("metrics audit: a file of another person's is not waited for, nor parsed at any depth",
          "[actors][audit]") {
  const Fixture f;
  CHECK(f.problem("{\"step\":" + std::string(300'000, '[') + "\n").find("nested deeper") !=
        std::string::npos);
  CHECK(f.problem(std::string(3 << 20, 'x') + "\n").find("longer than any") != std::string::npos);
  std::filesystem::remove(f.directory / "metrics.jsonl");
  REQUIRE(::mkfifo((f.directory / "metrics.jsonl").c_str(), 0600) == 0);
  const MetricsAudit found = audit_metrics(f.directory / "metrics.jsonl", f.facts);
  REQUIRE(found.problems.size() == 1);
  CHECK(found.problems.front().find("not a regular file") != std::string::npos);
}

TEST_CASE("metrics audit: lines of a file that is replaced meanwhile do not count",
          "[actors][audit]") {
  const Fixture f;
  std::string many = kOne + kTwo;
  std::int64_t lines = 2;
  for (; many.size() <= storage::LineTail::kPiece; ++lines) {
    many += fmt::format("{{\"step\":{},\"text\":\"{:90}\"}}\n", lines + 2, "");
  }
  test::write_bytes(f.directory / "anew", kOne + kTwo);
  test::write_bytes(f.directory / "metrics.jsonl", many);
  const Descriptor watch(::inotify_init1(IN_CLOEXEC));
  REQUIRE(::inotify_add_watch(watch.get(), (f.directory / "metrics.jsonl").c_str(), IN_ACCESS) >=
          0);
  std::thread writer([&] {
    pollfd read = {.fd = watch.get(), .events = POLLIN, .revents = 0};
    ::poll(&read, 1, 60'000);  // The first piece has been read, and is parsed.
    std::error_code failed;
    std::filesystem::rename(f.directory / "anew", f.directory / "metrics.jsonl", failed);
  });
  const MetricsAudit found = audit_metrics(f.directory / "metrics.jsonl", f.facts);
  writer.join();
  CHECK(found.problems == std::vector<std::string>());
  CHECK(found.steps == 2);
  CHECK((found.newer == 0 || found.newer == lines - 2));  // A late writer replaces nothing.
}

TEST_CASE("metrics audit: what is not finite has no number in JSON", "[actors][audit]") {
  Fixture f;
  f.steps[1].loss = std::numeric_limits<double>::infinity();
  CHECK(f.audit(with(kOne, "0.1", "null")).problems.empty());
  CHECK(f.audit(kOne).problems.size() == 1);
}

}  // namespace
}  // namespace train::cli::metrics_audit_test
