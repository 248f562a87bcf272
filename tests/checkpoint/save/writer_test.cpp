#include "checkpoint/save/writer.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <random>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/reader.hpp"
#include "checkpoint/save/retention.hpp"
#include "storage/files/file_calls.hpp"
#include "storage/safetensors.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/full_disk.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::names_in;
using train::test::SmallState;
using train::test::TempDirectory;
using train::test::write_at;

namespace {

/// Kills its own process at the how many-th call on files: before it, or, of a write, after half of
/// its bytes.
class KilledAtCall final : public storage::FileCallHook {
 public:
  explicit KilledAtCall(int number) : left_(number) {}

  int before(storage::FileCall& call) override {
    if (--left_ == 0 && call.kind != storage::FileCallKind::write) {
      std::raise(SIGKILL);
    }
    if (left_ == 0) {
      call.bytes = call.bytes.first(call.bytes.size() / 2);
    }
    return 0;
  }
  void after(const storage::FileCall& /*call*/, int /*error_number*/) override {
    if (left_ == 0) {
      std::raise(SIGKILL);
    }
  }

 private:
  int left_;
};

}  // namespace

TEST_CASE("writer: a checkpoint appears whole under its name", "[checkpoint][writer][CK-1]") {
  const TempDirectory directory;
  SmallState state;
  auto views = state.views();
  auto fields = test::fields_at(200);
  fields.weights_digest = "0123456789abcdef";
  const auto outcome = test::write_checkpoint(directory / "checkpoints", fields, views);
  REQUIRE(outcome);
  REQUIRE_FALSE(outcome->already_there);
  REQUIRE(outcome->path == directory / "checkpoints/step-00000200");
  REQUIRE(names_in(directory / "checkpoints") == std::vector<std::string>{"step-00000200"});
  REQUIRE(names_in(outcome->path) ==
          std::vector<std::string>{"manifest.json", "shard-00000-of-00001.safetensors"});
  const auto found = verify_checkpoint(outcome->path);
  REQUIRE(found);
  REQUIRE(found->defect.empty());
  REQUIRE(found->manifest_digest == outcome->manifest_digest);
  REQUIRE(found->manifest->fields.weights_digest == fields.weights_digest);
}

TEST_CASE("writer: the manifest comes last and the name after it", "[checkpoint][writer][CK-1]") {
  const TempDirectory directory;
  SmallState state;
  test::CheckpointOfOneProcess incoming(directory.path(), 5);
  const auto first = incoming.write_shard(state.views_of(0, 2), {0, 2});
  REQUIRE(first);
  REQUIRE(list_checkpoints(directory.path())->empty());
  REQUIRE_FALSE(std::filesystem::exists(incoming.path() / kManifestFileName));
  const auto second = incoming.write_shard(state.views_of(1, 2), {1, 2});
  REQUIRE(second);
  const std::vector<ShardRecord> shards = {*second, *first};
  REQUIRE(incoming.publish(test::fields_at(5), shards));
  REQUIRE(list_checkpoints(directory.path())->size() == 1);
}

TEST_CASE("writer: shards that do not add up are not published", "[checkpoint][writer][CK-1]") {
  const TempDirectory directory;
  SmallState state;
  {
    test::CheckpointOfOneProcess incoming(directory.path(), 5);
    const auto first = incoming.write_shard(state.views_of(0, 2), {0, 2});
    REQUIRE(first);
    const auto outcome = incoming.publish(test::fields_at(5), std::span(&*first, 1));
    REQUIRE_FALSE(outcome);
    REQUIRE_THAT(outcome.error().message, Catch::Contains("model.embedding"));
  }
  REQUIRE(names_in(directory.path()).empty());
}

TEST_CASE("writer: a shard that is missing, shorter or longer than it was is not published",
          "[checkpoint][writer][CK-1]") {
  const TempDirectory directory;
  SmallState state;
  test::CheckpointOfOneProcess incoming(directory.path(), 5);
  const auto shard = incoming.write_shard(state.views(), {0, 1});
  REQUIRE(shard);
  const auto path = incoming.path() / shard->file.name;
  const std::string good = test::read_bytes(path);
  const auto refused = [&](const std::string& why) {
    const auto outcome = incoming.publish(test::fields_at(5), std::span(&*shard, 1));
    REQUIRE_FALSE(outcome);
    REQUIRE_THAT(outcome.error().message, Catch::Contains(shard->file.name + " " + why));
    REQUIRE(list_checkpoints(directory.path())->empty());
  };
  test::write_bytes(path, good + "x");
  refused(fmt::format("has {} bytes of {}", good.size() + 1, good.size()));
  test::write_bytes(path, good.substr(1));
  refused(fmt::format("has {} bytes of {}", good.size() - 1, good.size()));
  std::filesystem::remove(path);
  refused("is not there");
  test::write_bytes(path, good);
  REQUIRE(incoming.publish(test::fields_at(5), std::span(&*shard, 1)));
}

TEST_CASE("writer: what cannot be read is not replaced", "[checkpoint][writer][CK-3]") {
  const TempDirectory directory;
  const auto first = test::write_at(directory.path(), 5, SmallState(1));
  const std::string bytes = test::read_bytes(first.path / "shard-00000-of-00001.safetensors");
  {
    SmallState state(2);
    test::CheckpointOfOneProcess incoming(directory.path(), 5);
    const auto shard = incoming.write_shard(state.views(), {0, 1});
    REQUIRE(shard);
    const test::FailingReads reads("/step-00000005/shard", EIO, 1);
    const auto outcome = incoming.publish(test::fields_at(5), std::span(&*shard, 1));
    REQUIRE_FALSE(outcome);
    REQUIRE_THAT(outcome.error().message,
                 Catch::Contains("cannot be read") && Catch::Contains("Input/output error"));
  }
  REQUIRE(names_in(directory.path()) == std::vector<std::string>{"step-00000005"});
  REQUIRE(test::read_bytes(first.path / "shard-00000-of-00001.safetensors") == bytes);
}

TEST_CASE("writer: a full disk fails the write and leaves what was there",
          "[checkpoint][writer][CK-2]") {
  const TempDirectory directory;
  const test::SmallDisk disk(directory / "disk", "256k");
  if (!disk.mounted()) {
    return;
  }
  write_at(disk.path(), 1, SmallState());
  std::vector<float> big(1 << 18);
  const std::vector<engine::StateView> views = {{"model.big",
                                                 {1 << 18},
                                                 0,
                                                 1 << 18,
                                                 reinterpret_cast<std::byte*>(big.data()),
                                                 big.size() * 4}};
  const auto outcome = test::write_checkpoint(disk.path(), test::fields_at(2), views);
  REQUIRE_FALSE(outcome);
  REQUIRE(outcome.error().exit_code() == 1);
  REQUIRE_THAT(outcome.error().message, Catch::Contains("disk full"));
  REQUIRE(names_in(disk.path()) == std::vector<std::string>{"step-00000001"});
  REQUIRE(verify_checkpoint(disk.path() / "step-00000001")->whole());
  // Once there is room again, the same write succeeds.
  write_at(disk.path(), 2, SmallState());
}

TEST_CASE("writer: SIGKILL at any moment leaves whole checkpoints only",
          "[checkpoint][writer][CK-1][CK-2]") {
  const TempDirectory directory;
  std::mt19937 random(Catch::rngSeed());
  for (int round = 0; round < 25; ++round) {
    const auto number = static_cast<int>(1 + random() % 200);
    INFO("call " << number << " of round " << round);
    const pid_t child = ::fork();
    if (child == 0) {
      KilledAtCall killed(number);
      storage::install_file_call_hook(&killed);
      for (std::int64_t step = 1;; ++step) {
        SmallState state(static_cast<float>(step));
        auto views = state.views();
        (void)test::write_checkpoint(directory.path(), test::fields_at(step), views).ok();
        (void)retire(directory.path(), step - 3).ok();
      }
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(WTERMSIG(status) == SIGKILL);
    const auto candidates = list_checkpoints(directory.path());
    REQUIRE(candidates);
    for (const Candidate& candidate : *candidates) {
      const auto found = verify_checkpoint(candidate.path);
      REQUIRE(found);
      INFO(found->defect);
      REQUIRE(found->whole());
      SmallState expected(static_cast<float>(candidate.step));
      SmallState read(0);
      auto views = read.views();
      REQUIRE(restore(candidate.path, *found->manifest, views));
      REQUIRE(read.all_values() == expected.all_values());
    }
    REQUIRE(find_newest(directory.path()));
    for (const std::string& name : names_in(directory.path())) {
      REQUIRE(name.starts_with("step-"));
    }
  }
}

TEST_CASE("writer: a whole checkpoint in place wins, a damaged one is set aside",
          "[checkpoint][writer][CK-3]") {
  const TempDirectory directory;
  const auto first = write_at(directory.path(), 7, SmallState(1));
  const auto again = write_at(directory.path(), 7, SmallState(2));
  REQUIRE(again.already_there);
  REQUIRE(again.manifest_digest == first.manifest_digest);
  test::flip_byte(first.path / "shard-00000-of-00001.safetensors", 480);
  const auto third = write_at(directory.path(), 7, SmallState(2));
  REQUIRE_FALSE(third.already_there);
  REQUIRE(third.manifest_digest != first.manifest_digest);
  REQUIRE(names_in(directory.path()) ==
          std::vector<std::string>{"damaged-step-00000007", "step-00000007"});
}

TEST_CASE("layout: names and steps are one to one", "[checkpoint][layout]") {
  REQUIRE(checkpoint_name(200) == "step-00000200");
  REQUIRE(checkpoint_name(1'234'567'890) == "step-1234567890");
  REQUIRE(checkpoint_step("step-00000200") == 200);
  REQUIRE(checkpoint_step("step-1234567890") == 1'234'567'890);
  for (const char* name :
       {"step-200", "step-0000020x", "step-", "damaged-step-00000200", "step-0001234567890",
        "step-99999999999999999999999", "step--0000200", "xstep-00000200"}) {
    REQUIRE_FALSE(checkpoint_step(name));
  }
}
