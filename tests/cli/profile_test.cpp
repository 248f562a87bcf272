#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "actors/train/boards/rank_board.hpp"
#include "actors/train/runtime/rank_profile.hpp"
#include "cli/profile/run_profile.hpp"
#include "configs/fields/optimizer_table.hpp"
#include "engine/optimizer/exact_sum.hpp"
#include "engine/optimizer/registry.hpp"
#include "run/directory/run_directory.hpp"
#include "run/report/run_report.hpp"
#include "storage/files/atomic_file.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::cli::profile_test {
using namespace actors;
using namespace run;
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMs = 1'000'000;

bool covers(const TimeSpans& spans, std::int64_t at) {
  return std::any_of(spans.begin(), spans.end(), [at](const TimeSpan& span) {
    return span.begin_ns <= at && at < span.end_ns;
  });
}

TEST_CASE("profile: spans are added, cut and taken away as points are", "[actors][profile]") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const auto some = [&random] {
      TimeSpans spans;
      for (std::uint32_t i = random() % 8; i > 0; --i) {
        const std::int64_t begin = random() % 40;
        spans.push_back({begin, begin + static_cast<std::int64_t>(random() % 9)});
      }
      return spans;
    };
    const TimeSpans raw = some();
    const TimeSpans a = united(raw);
    const TimeSpans b = united(some());
    const TimeSpans both = common(a, b);
    const TimeSpans rest = without(a, b);
    std::int64_t in_both = 0;
    for (std::int64_t at = 0; at < 60; ++at) {
      REQUIRE(covers(a, at) == covers(raw, at));
      REQUIRE(covers(both, at) == (covers(a, at) && covers(b, at)));
      REQUIRE(covers(rest, at) == (covers(a, at) && !covers(b, at)));
      in_both += covers(both, at) ? 1 : 0;
    }
    REQUIRE(total_ns(both) == in_both);
    REQUIRE(total_ns(both) + total_ns(rest) == total_ns(a));
  }
}

/// Two steps of 10 ms, an evaluation between them. The first: 6 ms of work, a collective over 5 ms,
/// 3 of them while the stream works. The second: 4 ms of work, no collective.
RankProfile small_profile(std::int64_t rank) {
  RankProfile profile;
  profile.rank = rank;
  profile.host = "here";
  profile.machine = "one";
  profile.names = {"forward", "backward", "tokens of a \"lane\""};
  profile.units = {"embedding", "block 0", "block 1", "head"};
  profile.groups = profile.units;
  const auto work = [](std::uint32_t name, std::int32_t unit, std::int64_t begin,
                       std::int64_t end) {
    return Stretch{.name = name,
                   .waited = false,
                   .host = false,
                   .step = 0,
                   .unit = unit,
                   .lane = 0,
                   .begin_ns = begin * kMs,
                   .end_ns = end * kMs};
  };
  profile.streams.resize(4);
  profile.streams[0] = {
      .name = "compute",
      .stretches = {work(0, 1, 100, 102), work(0, 2, 102, 103), work(1, 1, 105, 108),
                    work(0, 1, 111, 118), work(1, 3, 121, 125)},
      .dropped = 0};
  profile.streams[0].stretches.push_back(work(1, 3, 126, 127));
  profile.streams[0].stretches.back().waited = true;
  profile.streams[0].stretches.push_back(work(1, 3, 127, 129));
  profile.streams[0].stretches.back().host = true;
  profile.streams[1].name = "copy";
  profile.streams[2].name = "input";
  profile.streams[3].name = "disk";
  profile.waits = {{.name = "rank", .stretches = {work(2, -1, 103, 105)}, .dropped = 0}};
  profile.command_names = {"train_step", "evaluate"};
  profile.commands.records = {{0, 1, 0, 100 * kMs, 110 * kMs},
                              {1, 2, -1, 110 * kMs, 120 * kMs},
                              {0, 3, 1, 120 * kMs, 130 * kMs}};
  const auto moved = [](std::uint64_t command, std::int64_t requested, std::int64_t begin,
                        std::int64_t end, std::uint64_t bytes) {
    return CollectiveRecord{.channel = engine::Channel::reduce,
                            .kind = engine::CollectiveKind::reduce,
                            .command = command,
                            .index = 0,
                            .group = 1,
                            .part = 0,
                            .requested_ns = requested * kMs,
                            .begin_ns = begin * kMs,
                            .end_ns = end * kMs,
                            .sent_bytes = bytes};
  };
  // The second one is handed over while the first one moves; the third is the evaluation's.
  profile.collectives.records = {moved(1, 102, 103, 106, 700), moved(1, 103, 104, 107, 300),
                                 moved(2, 111, 112, 119, 5000)};
  return profile;
}

TEST_CASE("profile: a summary of known times", "[actors][profile]") {
  const ProfileSummary summary = summarize({small_profile(0)});
  REQUIRE(summary.ranks.size() == 1);
  const RankSummary& rank = summary.ranks.front();
  CHECK(rank.steps == 2);
  CHECK(rank.step_seconds == Approx(0.010));
  CHECK(rank.busy_seconds == Approx(0.005));
  CHECK(rank.waiting_seconds == Approx(0.005));
  CHECK(rank.overlapped_seconds == Approx(0.0015));
  CHECK(rank.exposed_seconds == Approx(0.001));
  CHECK(rank.gaps == Approx(2.0));
  CHECK(rank.longest_gap_seconds == Approx(0.005));  // From 125 ms to the end of the last step.
  CHECK(rank.gap_after == "backward head");
  CHECK(rank.gap_before.empty());
  CHECK(rank.sent_bytes == Approx(500.0));
  REQUIRE(summary.kernels.size() == 3);
  CHECK(summary.kernels[0].what == "backward");
  CHECK(summary.kernels[0].unit == "head");
  CHECK(summary.kernels[0].seconds == Approx(0.002));
  CHECK(summary.kernels[0].share == Approx(0.2));
  for (const KernelSummary& kernel : {summary.kernels[1], summary.kernels[2]}) {
    CHECK(kernel.unit == "block");
    CHECK(kernel.seconds == Approx(0.0015));
  }
  CHECK(summary.remarks.empty());

  const Json json = Json::parse(to_json(summary));
  CHECK(json["ranks"][0]["exposed_seconds"].get<double>() == Approx(0.001));
  CHECK(json["ranks"][0]["gaps"].get<double>() == Approx(2.0));
  CHECK(json["ranks"][0]["longest_gap_seconds"].get<double>() == Approx(0.005));
  CHECK(json["kernels"].size() == 3);
  CHECK(to_text(summary).find("50.0 %") != std::string::npos);
}

/// `count` steps of 10 ms and a profile of nothing else; each works for 8 ms, but for the first
/// three, which work for 1 ms at their begin, and for the last but one, which works in two pieces.
RankProfile profile_of_steps(std::int64_t count) {
  RankProfile profile = small_profile(0);
  profile.commands.records.clear();
  profile.collectives.records.clear();
  std::vector<Stretch>& work = profile.streams[0].stretches;
  work.clear();
  for (std::int64_t step = 0; step < count; ++step) {
    const std::int64_t begin = 100 + 10 * step;
    profile.commands.records.push_back(
        {0, static_cast<std::uint64_t>(step + 1), step, begin * kMs, (begin + 10) * kMs});
    const auto add = [&](std::uint32_t name, std::int32_t unit, std::int64_t from,
                         std::int64_t to) {
      work.push_back({.name = name,
                      .step = step,
                      .unit = unit,
                      .lane = 0,
                      .begin_ns = (begin + from) * kMs,
                      .end_ns = (begin + to) * kMs});
    };
    if (step == count - 2) {
      add(0, 2, 0, 3);
      add(1, -1, 6, 10);
    } else {
      add(0, 1, 0, step < 3 ? 1 : 8);
    }
  }
  return profile;
}

TEST_CASE("profile: the first steps are left out, and the longest gap is named",
          "[actors][profile]") {
  const ProfileSummary summary = summarize({profile_of_steps(8)});
  const RankSummary& rank = summary.ranks.front();
  CHECK(rank.steps == 5);
  CHECK(rank.steps_left_out == 3);
  CHECK(rank.busy_seconds == Approx((4 * 8 + 7) * 1e-3 / 5));
  CHECK(rank.longest_gap_seconds == Approx(0.003));
  CHECK(rank.gap_after == "forward block 1");
  CHECK(rank.gap_before == "backward");
  const Json json = Json::parse(to_json(summary));
  CHECK(json["ranks"][0]["steps_left_out"] == 3);
  CHECK(json["ranks"][0]["gap_after"] == "forward block 1");
  CHECK(json["ranks"][0]["gap_before"] == "backward");
  CHECK(to_text(summary).find("rank 0: without its first 3 steps; 1.0 gaps over 20 us without "
                              "work per step, the longest 3.000 ms, after \"forward block 1\" and "
                              "before \"backward\"") != std::string::npos);
  double kernels = 0.0;
  for (const KernelSummary& kernel : summary.kernels) {
    kernels += kernel.seconds;
  }
  CHECK(kernels == Approx(rank.busy_seconds));
}

TEST_CASE("profile: of few steps none is left out, nor where the first ones were dropped",
          "[actors][profile]") {
  CHECK(summarize({profile_of_steps(5)}).ranks[0].steps == 5);
  CHECK(summarize({profile_of_steps(5)}).ranks[0].steps_left_out == 0);
  CHECK(summarize({profile_of_steps(6)}).ranks[0].steps == 3);
  RankProfile profile = profile_of_steps(9);
  profile.streams[0].dropped = 1;
  profile.streams[0].stretches.erase(profile.streams[0].stretches.begin());
  const RankSummary rank = summarize({profile}).ranks[0];
  CHECK(rank.steps == 8);
  CHECK(rank.steps_left_out == 0);
}

TEST_CASE("profile: work from one step into the next belongs to both", "[actors][profile]") {
  RankProfile profile = small_profile(0);
  profile.commands.records = {{0, 1, 0, 100 * kMs, 110 * kMs}, {0, 2, 1, 110 * kMs, 120 * kMs}};
  profile.streams[0].stretches = {profile.streams[0].stretches[0]};
  profile.streams[0].stretches[0].begin_ns = 95 * kMs;
  profile.streams[0].stretches[0].end_ns = 118 * kMs;
  const ProfileSummary summary = summarize({profile});
  CHECK(summary.ranks[0].busy_seconds == Approx(0.009));
  REQUIRE(summary.kernels.size() == 1);
  CHECK(summary.kernels[0].seconds == Approx(0.009));
}

TEST_CASE("profile: steps of which something was dropped are not measured", "[actors][profile]") {
  RankProfile profile = small_profile(0);
  profile.streams[0].dropped = 5;
  profile.streams[0].stretches.erase(profile.streams[0].stretches.begin());
  const ProfileSummary summary = summarize({profile, small_profile(1)});
  CHECK(summary.ranks[0].steps == 1);
  CHECK(summary.ranks[0].busy_seconds == Approx(0.004));
  CHECK(summary.ranks[1].steps == 2);
  REQUIRE(summary.remarks.size() == 1);
  CHECK(summary.remarks[0] == "rank 0, compute: the oldest 5 records are not kept");

  profile.commands.records.clear();
  CHECK(to_text(summarize({profile})).find("no whole training step") != std::string::npos);
}

Json chrome_trace(const std::vector<RankProfile>& profiles) {
  std::string text;
  REQUIRE(write_chrome_trace(profiles, [&text](std::string_view piece) {
            text += piece;
            return Status();
          }).ok());
  return Json::parse(text);
}

TEST_CASE("profile: the trace of two ranks is sorted and its tracks do not overlap",
          "[actors][profile]") {
  RankProfile far = small_profile(1);
  far.machine = "two";
  far.wall_offset_ns = 500 * kMs;  // its clock began half a second later
  for (Track& track : far.streams) {
    for (Stretch& stretch : track.stretches) {
      stretch.begin_ns -= 500 * kMs;
      stretch.end_ns -= 500 * kMs;
    }
  }
  far.commands.records.clear();
  far.collectives.records.clear();
  far.waits.clear();
  const Json trace = chrome_trace({small_profile(0), far});
  std::map<std::pair<int, int>, double> end_of_track;
  double last = 0.0;
  int events = 0;
  std::map<int, double> first_work;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      continue;
    }
    ++events;
    const double begin = event["ts"].get<double>();
    const auto track = std::pair(event["pid"].get<int>(), event["tid"].get<int>());
    CHECK(begin >= last);
    CHECK(begin >= end_of_track[track]);
    last = begin;
    end_of_track[track] = begin + event["dur"].get<double>();
    if (event["cat"] == "work") {
      first_work.emplace(track.first, begin);
    }
  }
  CHECK(events == 3 + 7 + 3 + 1 + 7);
  CHECK(first_work.at(0) == Approx(first_work.at(1)));
  CHECK(end_of_track[std::pair(0, 21)] == Approx(19'000.0));  // microseconds from the first event
  CHECK(chrome_trace({RankProfile{}})["traceEvents"].is_array());
}

TEST_CASE("profile: a rank's file comes back as it was", "[actors][profile]") {
  RankProfile profile = small_profile(3);
  profile.wall_offset_ns = -12;
  profile.collectives.dropped = 9;
  const std::string text = to_json(profile);
  const auto back = parse_profile(text, "rank-3.json");
  REQUIRE(back.ok());
  CHECK(to_json(*back) == text);
  REQUIRE(back->streams[0].stretches.size() == 7);
  CHECK(back->streams[0].stretches[5].waited);
  CHECK(back->streams[0].stretches[6].host);
  CHECK(back->collectives.records[1].sent_bytes == 300);
  CHECK(back->collectives.dropped == 9);
  const auto torn = parse_profile(text.substr(0, text.size() / 2), "rank-3.json");
  REQUIRE_FALSE(torn.ok());
  CHECK(torn.error().message.find("rank-3.json") != std::string::npos);
}

TEST_CASE("profile: a rank that left no file is named", "[actors][profile]") {
  const test::TempDirectory home;
  const auto directory = profile_directory(home.path());
  REQUIRE(prepare_profile(directory).ok());
  CHECK_FALSE(join_profiles(directory, 2, {}).ok());
  REQUIRE(
      storage::write_file_atomically(directory / "rank-0.json", to_json(small_profile(0))).ok());
  const auto table = join_profiles(directory, 2, {});
  REQUIRE(table.ok());
  CHECK(table->find("rank 1 left no profile") != std::string::npos);
  CHECK(std::filesystem::exists(directory / "trace.json"));
  CHECK(std::filesystem::exists(directory / "summary.json"));
  REQUIRE(prepare_profile(directory).ok());  // the next run's
  CHECK(std::filesystem::is_empty(directory));
}

TEST_CASE("profile: a board keeps the waits that are over", "[actors][profile]") {
  WaitTable board;
  WaitTable::Line unrecorded = board.add("early");
  board.record(2);
  WaitTable::Line line = board.add("rank");
  unrecorded.begin("tokens", 1);
  unrecorded.end();
  line.begin("tokens", 4);
  line.begin("tokens", 5);  // the same wait
  line.begin("bytes", 5);
  line.end();
  line.end();
  const std::int64_t now = steady_now_ns();
  auto history = board.history(now);
  REQUIRE(history.size() == 1);
  CHECK(history[0].who == "rank");
  REQUIRE(history[0].waits.size() == 2);
  CHECK(history[0].waits[0].what == std::string("tokens"));
  CHECK(history[0].waits[0].step == 4);
  CHECK(history[0].waits[0].end_ns <= history[0].waits[1].begin_ns);
  CHECK(history[0].waits[1].end_ns <= now);
  line.begin("turn", 6);
  const std::int64_t later = steady_now_ns() + 1;
  history = board.history(later);
  REQUIRE(history[0].waits.size() == 3);  // the last one is under way
  CHECK(history[0].waits[2].end_ns == later);
}

TEST_CASE("report: a step's line has what the optimizer says of its update",
          "[actors][report][optimizer]") {
  const test::TempDirectory home;
  const auto section = configs::default_optimizer("adana");
  auto report = RunReport::open({.directory = home.path(),
                                 .total_steps = 2,
                                 .tokens_per_step = 10,
                                 .optimizer = engine::make_optimizer(section, 2)});
  REQUIRE(report.ok());
  for (std::int64_t step = 1; step <= 2; ++step) {
    StepFinished event;
    event.step = step;
    if (step == 1) {
      std::vector<engine::ExactSum> sums(4);  // Of alpha, ratio, momentum squared; a count.
      for (const auto& [at, value] : {std::pair{0U, 6.0}, {1U, 2.0}, {2U, 9.0}, {3U, 4.0}}) {
        sums[at].add(value);
      }
      event.optimizer_sums = engine::words_of(sums);
    }
    REQUIRE_NOTHROW((*report)->step(event, steady_now_ns() + step));
  }
  std::ifstream file(home / "metrics.jsonl");
  std::string text;
  REQUIRE(std::getline(file, text));
  const auto line = nlohmann::ordered_json::parse(text);
  CHECK(line["optimizer/alpha"] == 1.5);
  CHECK(line["optimizer/auto_factor"] == 0.5);
  CHECK(line["optimizer/kappa_factor"] == 3.0);
  CHECK(line["optimizer/m_norm"] == 3.0);
  REQUIRE(std::getline(file, text));
  CHECK(text.find("optimizer/") == std::string::npos);
}

TEST_CASE("report: a step's line has the norm of every unit's gradient", "[actors][report]") {
  const test::TempDirectory home;
  auto report = RunReport::open({.directory = home.path(),
                                 .total_steps = 4,
                                 .log_interval = 2,
                                 .tokens_per_step = 10,
                                 .units = {"embedding", "block 0", "head"}});
  REQUIRE(report.ok());
  for (std::int64_t step = 1; step <= 2; ++step) {
    StepFinished event;
    event.step = step;
    event.grad_norm = FloatBits(3.0);
    for (const double norm : {1.0, 2.0, 2.0}) {
      event.unit_grad_norms.push_back(std::bit_cast<std::uint64_t>(norm));
    }
    REQUIRE_NOTHROW((*report)->step(event, steady_now_ns() + step));
  }
  std::ifstream file(home / "metrics.jsonl");
  std::string text;
  REQUIRE(std::getline(file, text));
  const auto line = nlohmann::ordered_json::parse(text);
  CHECK(line["step"] == 2);
  CHECK(line["unit_grad_norm"].dump() == R"({"embedding":1.0,"block 0":2.0,"head":2.0})");
  CHECK_FALSE(std::getline(file, text));  // step 1 is between two intervals
  bool found = false;
  for (const auto& entry : std::filesystem::directory_iterator(home / "tensorboard")) {
    found = found || test::read_bytes(entry.path()).find("grad_norm/block 0") != std::string::npos;
  }
  CHECK(found);
}

}  // namespace
}  // namespace train::cli::profile_test
