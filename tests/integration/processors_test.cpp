// One set of bits on every processor with FMA: the numbers of the shipped runs are written down
// here, and come out the same without AVX-512, on all ranks or on one, whatever functions the C
// library chooses and whatever floating-point mode other libraries set.

#include <fmt/ranges.h>

#include <bit>

#include "storage/files/digest.hpp"
#include "tests/integration/sites/audit_runs.hpp"
#include "tests/integration/sites/killed_runs.hpp"

using namespace train::test;

namespace {

/// The program on a processor without AVX-512, for the ranks that are named ("head": of a run in
/// one process), to an end with this exit code.
Ended without_avx512(const Words& ranks, const RunSite& site, const Words& words,
                     int exit_code = 0) {
  const std::string roles = fmt::format("ACTORTRAIN_TEST_NO_AVX512={}", fmt::join(ranks, ","));
  Process process(joined({"/usr/bin/env", roles, faulty_program()}, words), site.path());
  Ended ended = process.wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == exit_code);
  for (const std::string& rank : ranks) {
    REQUIRE(has(ended.err, fmt::format("without_avx512 role={}\n", rank)));
  }
  return ended;
}

/// The variants of functions without FMA, and libraries that change the mode of every thread.
const Words kStrangeHosts = {"GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA",
                             "LD_PRELOAD=" ACTORTRAIN_BINARY_DIR "/tests/libfloat_mode_preload.so"};

/// The program with one of them in its environment.
Ended on_host(const std::string& variable, const RunSite& site, const Words& words,
              int exit_code = 0) {
  Process process(joined({"/usr/bin/env", variable, program()}, words), site.path());
  Ended ended = process.wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == exit_code);
  return ended;
}

/// A text that is the same whatever compiler and library made it.
std::string fixed_text() {
  const Words words = {"the ",  "river ", "follows ", "a ",      "quiet ",  "child ",
                       "and ",  "waits ", "for ",     "our\n",   "miller ", "who ",
                       "sees ", "no ",    "end ",     "of it.\n"};
  std::string text;
  std::uint32_t state = 7;
  for (int i = 0; i < 12'000; ++i) {
    state = state * 1664525U + 1013904223U;
    text += words[state >> 28U];
  }
  return text;
}

/// A site with data/, made of that text.
struct FixedSite : RunSite {
  FixedSite() {
    write_bytes(path() / "text.txt", fixed_text());
    const Ended ended = call({"data", "prepare", "--input", "text.txt", "--out", "data"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
  }
};

/// A shipped run on that text, so many steps of it, digests at each. `interval` steps must take
/// longer than a save, or the next save is skipped.
Words shipped(const std::string& name, std::int64_t steps, std::int64_t interval,
              const Words& more = {}) {
  Words words = {"run", fmt::format(ACTORTRAIN_SOURCE_DIR "/configs/{}.toml", name)};
  const Words keys = {"data.dir=data",
                      fmt::format("run.steps={}", steps),
                      "run.digest_interval_steps=1",
                      "run.sample_tokens=0",
                      fmt::format("eval.interval_steps={}", interval),
                      fmt::format("checkpoint.interval_steps={}", interval),
                      "checkpoint.keep_last=0",
                      "eval.lanes=2"};
  for (const std::string& key : joined(keys, more)) {
    words.insert(words.end(), {"--set", key});
  }
  return words;
}

std::string bits_of(const nlohmann::json& value) {
  return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(value.get<double>()));
}

/// What is written down of a run: of some steps the bits of loss and gradient norm and the weights'
/// digest, and of the checkpoints there one of all weights and moments, if one rank wrote them.
Words numbers_of(const fs::path& run, const std::vector<std::int64_t>& steps) {
  Words numbers;
  for (const nlohmann::json& line : metrics_of(run)) {
    const std::int64_t step = line["step"];
    if (!line.contains("loss") || std::find(steps.begin(), steps.end(), step) == steps.end()) {
      continue;
    }
    numbers.push_back(fmt::format("{} {} {} {}", step, bits_of(line["loss"]),
                                  bits_of(line["grad_norm"]),
                                  line["weights_digest"].get<std::string>()));
    if (step > 1) {
      const auto manifest = manifest_of(run, step);
      CHECK(manifest.fields.weights_digest == line["weights_digest"]);
      CHECK(manifest.fields.kernel_set == "cpu-fma-2");
      std::string tensors;
      for (const auto& tensor : manifest.tensors) {
        tensors += tensor.name + " " + tensor.digest + "\n";
      }
      numbers.back() += " " + train::storage::digest_text(tensors).substr(9);
    }
  }
  return numbers;
}

/// Without the checkpoints' digests, which depend on how rows are split.
Words without_checkpoints(Words numbers) {
  for (std::string& line : numbers) {
    line.resize(std::min(line.size(), line.find(' ', line.find(' ') + 1) + 1 + 16 + 1 + 16));
  }
  return numbers;
}

// Whoever changes what these runs compute writes down the new numbers, and says so.
const Words kTiny = {
    "1 4019863fe26eafdc 4019239e60000000 4cc131bb33abe3fb",
    "10 400fcaed4a934f4a 3ff48108c0000000 db6670e5b4466036 0910e7a533179d9155698aaafccfa48e",
    "20 400bfeb909a8fc04 3ff3e40c00000000 bf387d302bc0baef 22b495a3d929166cc4896d9a4d67c065"};
const Words kQuickstart = {
    "1 40185a046a35f934 40343f89e0000000 0b041ce8932a5627",
    "7 4006f50e2a14827a 3ffd066960000000 bc06c368fb27923f ca54b5ffa9eae54fb262e0a5075477e9",
    "50 3fec7bb1ab828201 3fd799c760000000 699066fff00e7280 5d8043c988be937d790fc6c935a78834"};
const Words kQwen3 = {
    "1 4018b1b3720ce791 402af2a260000000 855fc97e093970b1",
    "7 40004fee42f78ce0 40102b3640000000 cb646c3cb219ea28 247caeccbf5b1265a8425eded7345d0a",
    "50 3fe76e966475b3ef 3fe1b99ce0000000 8f232abcac074429 a1d86ee1afc5782c66a829954c092f99"};

const Words kShortQuickstart = {"schedule.warmup_steps=5"};
const Words kShortQwen3 = {"schedule.warmup_steps=5", "schedule.constant_tail_steps=5"};

/// The first `steps` of a shipped run of 50.
Words first_steps(const std::string& name, int steps, const Words& more) {
  const Words job = {fmt::format("run.steps_per_job={}", steps)};
  return shipped(name, 50, 7, steps == 50 ? more : joined(more, job));
}

/// They have the numbers that are written down of steps 1, 7 and 50, with AVX-512 (if this machine
/// has it: runs/own) and without.
void check_shipped(const FixedSite& site, const std::string& name, const Words& keys,
                   const Words& numbers, int steps) {
  const int exit_code = steps == 50 ? 0 : 75;
  const Words wanted(numbers.begin(), numbers.end() - (steps == 50 ? 0 : 1));
  CHECK(site.call(first_steps(name, steps, joined(keys, {"run.name=own"}))).exit_code == exit_code);
  CHECK(numbers_of(site.run("own"), {1, 7, 50}) == wanted);
  without_avx512({"head"}, site, first_steps(name, steps, joined(keys, {"run.name=narrow"})),
                 exit_code);
  CHECK(results_of(site.run("narrow")) == results_of(site.run("own")));
  CHECK(numbers_of(site.run("narrow"), {1, 7, 50}) == wanted);
}

}  // namespace

TEST_CASE("processors: tiny_cpu has the numbers that are written down",
          "[integration][processors][P1]") {
  const FixedSite site;
  CHECK(site.call(shipped("tiny_cpu", 20, 10, {"run.name=own"})).exit_code == 0);
  CHECK(numbers_of(site.run("own"), {1, 10, 20}) == kTiny);
  without_avx512({"head"}, site, shipped("tiny_cpu", 20, 10, {"run.name=narrow"}));
  CHECK(results_of(site.run("narrow")) == results_of(site.run("own")));
  CHECK(numbers_of(site.run("narrow"), {1, 10, 20}) == kTiny);
}

TEST_CASE("processors: neither the C library's functions nor its mode enter the bits",
          "[integration][processors][P1]") {
  const std::string variable = GENERATE(from_range(kStrangeHosts));
  CAPTURE(variable);
  const FixedSite site;
  const Ended ended = on_host(variable, site, shipped("tiny_cpu", 20, 10));
  CHECK_FALSE(has(ended.err, "warning"));
  CHECK(numbers_of(site.run("tiny_cpu"), {1, 10, 20}) == kTiny);
}

TEST_CASE("processors: nor do they enter those of the other shipped runs",
          "[integration][.full][processors][P1]") {
  const std::string variable = GENERATE(from_range(kStrangeHosts));
  CAPTURE(variable);
  const FixedSite site;
  const auto first_numbers = [&](const std::string& name, const Words& keys) {
    on_host(variable, site, first_steps(name, 7, joined(keys, {"run.name=" + name})), 75);
    return numbers_of(site.run(name), {1, 7});
  };
  const auto first_two = [](const Words& numbers) {
    return Words(numbers.begin(), numbers.begin() + 2);
  };
  CHECK(first_numbers("quickstart", kShortQuickstart) == first_two(kQuickstart));
  CHECK(without_checkpoints(first_numbers("quickstart_2_ranks", kShortQuickstart)) ==
        without_checkpoints(first_two(kQuickstart)));
  CHECK(first_numbers("qwen3_tiny", kShortQwen3) == first_two(kQwen3));
}

TEST_CASE("processors: ranks in processes of any floating-point mode have the bits of one rank",
          "[integration][processors][ranks][P1]") {
  const RunSite site;
  const Words keys = {"run.digest_interval_steps=1", "run.steps=6"};
  site.train(joined(keys, {"run.name=one"}));
  Process process(
      joined({"/usr/bin/env", "LD_PRELOAD=" ACTORTRAIN_BINARY_DIR "/tests/libfloat_mode_preload.so",
              program()},
             RunSite::run_words(rank_keys(2, "full", joined(keys, {"run.name=two"})))),
      site.path());
  const Ended ended = process.wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(results_of(site.run("two")) == results_of(site.run("one")));
}

TEST_CASE("processors: the quickstart has the numbers that are written down",
          "[integration][.full][processors][P1]") {
  const FixedSite site;
  check_shipped(site, "quickstart", kShortQuickstart, kQuickstart, 7);
  without_avx512({"0"}, site,
                 first_steps("quickstart_2_ranks", 7, joined(kShortQuickstart, {"run.name=mixed"})),
                 75);
  CHECK(results_of(site.run("mixed")) == results_of(site.run("own")));
  CHECK(without_checkpoints(numbers_of(site.run("mixed"), {1, 7})) ==
        without_checkpoints({kQuickstart.begin(), kQuickstart.begin() + 2}));
}

TEST_CASE("processors: qwen3_tiny has the numbers that are written down",
          "[integration][.full][processors][P1]") {
  const FixedSite site;
  check_shipped(site, "qwen3_tiny", kShortQwen3, kQwen3, 7);
}

TEST_CASE("processors: the shipped runs have the numbers that are written down to their ends",
          "[integration][.soak][processors][P1]") {
  const FixedSite quickstart;
  check_shipped(quickstart, "quickstart", kShortQuickstart, kQuickstart, 50);
  const FixedSite qwen3;
  check_shipped(qwen3, "qwen3_tiny", kShortQwen3, kQwen3, 50);
}

TEST_CASE("processors: ranks on two kinds of processor are one job, with the bits of one rank",
          "[integration][processors][ranks][P1]") {
  const RunSite site;
  const Words keys = {"run.digest_interval_steps=1", "run.steps=6"};
  site.train(joined(keys, {"run.name=one"}));
  const Ended ended = without_avx512(
      {"1"}, site, RunSite::run_words(rank_keys(2, "full", joined(keys, {"run.name=mixed"}))));
  CHECK_FALSE(has(ended.err, "without_avx512 role=0"));
  CHECK_FALSE(has(ended.err, "warning"));
  CHECK(results_of(site.run("mixed")) == results_of(site.run("one")));
}

TEST_CASE("processors: a checkpoint that names an instruction set is resumed, with a note",
          "[integration][processors]") {
  const std::string before = GENERATE("cpu-avx512", "cpu-avx2", "cpu-fma");
  const RunSite site;
  const Words words = RunSite::run_words({"run.digest_interval_steps=1"});
  Process old(
      joined({"/usr/bin/env", "ACTORTRAIN_TEST_KERNEL_SET=" + before, faulty_program()}, words),
      site.path());
  REQUIRE(old.wait().exit_code == 0);
  const Words whole = results_of(site.run());
  CHECK(manifest_of(site.run(), 20).fields.kernel_set == before);
  forget_after(site.run(), 10);
  const Ended resumed =
      site.call(RunSite::run_words({"run.digest_interval_steps=1", "run.steps_per_job=3"}));
  CHECK(resumed.exit_code == 75);
  CHECK(has(resumed.err,
            fmt::format("kernel_set_changed saved with {}, running on cpu-fma-2", before)));
  // The record of steps 14 to 20 was of other kernels.
  CHECK(journal_of(site.run()).steps.rbegin()->first == 13);
  const auto replayed = [&site](const std::string& last) {
    const Ended ended = site.call({"replay", "runs/tiny", "--to", last});
    CHECK(ended.exit_code == 0);
    return ended.err;
  };
  CHECK(has(replayed("10"), fmt::format("saved with {}, replayed on cpu-fma-2", before)));
  CHECK_FALSE(has(replayed("13"), "kernel_set_changed"));  // Others computed only its start.
  site.train({"run.digest_interval_steps=1"});
  CHECK(results_of(site.run()) == whole);
  CHECK(manifest_of(site.run(), 20).fields.kernel_set == "cpu-fma-2");
}
