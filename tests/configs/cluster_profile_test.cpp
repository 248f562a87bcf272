// Cluster profiles: what they hold, how one is chosen, and that each mistake is one line.
#include "configs/clusters/cluster_profile.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/disks/temp_directory.hpp"

namespace train::configs::cluster_profile_test {
namespace {

using test::TempDirectory;
using test::write_bytes;

const char* const kFolder = ACTORTRAIN_SOURCE_DIR "/configs/clusters";

TEST_CASE("profiles: every key is read", "[configs][clusters]") {
  const auto profile = parse_cluster_profile(R"(
hosts = ["login*.a.org", "b[0-9]"]
partition = "gpu"
account = "def-x"
constraint = "nvme&v100"
time = "1-12"
mem = "320GB"
gpus = "h100:4"
cpus = 8
grace_s = 60
interface = "ib0"
run_dir = "/scratch/a b"
local_dir = "/tmp"
modules = ["gcc/12", "cuda"]
before = ["ulimit -l unlimited"]
[environment]
B = "$HOME \"x\""
A = ""
)",
                                             "dir/site.toml");
  REQUIRE(profile.ok());
  CHECK(profile->name == "site");
  CHECK(profile->hosts == std::vector<std::string>{"login*.a.org", "b[0-9]"});
  CHECK(profile->partition == "gpu");
  CHECK(profile->account == "def-x");
  CHECK(profile->constraint == "nvme&v100");
  CHECK(profile->time == "1-12");
  CHECK(profile->mem == "320GB");
  CHECK(profile->gpus == "h100:4");
  CHECK(profile->cpus == 8);
  CHECK(profile->grace_s == 60);
  CHECK(profile->interface == "ib0");
  CHECK(profile->run_dir == "/scratch/a b");
  CHECK(profile->local_dir == "/tmp");
  CHECK(profile->modules == std::vector<std::string>{"gcc/12", "cuda"});
  CHECK(profile->before == std::vector<std::string>{"ulimit -l unlimited"});
  CHECK(profile->environment ==
        std::vector<std::pair<std::string, std::string>>{{"A", ""}, {"B", "$HOME \"x\""}});
  const auto whole_numbers = parse_cluster_profile("gpus = 4\nmem = 0\ntime = 30\n", "a.toml");
  REQUIRE(whole_numbers.ok());
  CHECK(whole_numbers->gpus == "4");
  CHECK(whole_numbers->mem == "0");
  CHECK(whole_numbers->time == "30");
}

TEST_CASE("profiles: a mistake is one line with file, line, key and the fix",
          "[configs][clusters][mistakes]") {
  struct Case {
    std::string text;
    std::string part;
  };
  const std::vector<Case> cases = {
      {"\npartion = \"x\"\n", "a.toml:2: unknown key \"partion\"; did you mean \"partition\"?"},
      {"zzzzzz = 1\n", "a.toml:1: unknown key \"zzzzzz\"; a profile knows account, "},
      {"[run]\nname = \"x\"\n", "a.toml:1: unknown key \"run\""},
      {"partition = \n", "a.toml:1: not valid TOML"},
      {"partition = \"a b\"\n", "partition wants a name without spaces and quotes, found \"a b\""},
      {"account = \"\"\n", "account wants a name"},
      {"account = \"-A\"\n", "account wants a name"},
      {"account = \"a'b\"\n", "account wants a name"},
      {"constraint = \"a#b\"\n", "constraint wants a name"},
      {"partition = true\n", "partition wants a name"},
      {"time = \"4h\"\n", "time wants a time as \"4:00:00\" or \"1-12\", found \"4h\""},
      {"time = \"0:00\"\n", "time wants a time"},
      {"mem = \"lots\"\n", "mem wants an amount"},
      {"mem = -1\n", "mem wants an amount"},
      {"gpus = \"h100 4\"\n", "gpus wants a number as \"4\" or \"h100:4\""},
      {"cpus = 0\n", "cpus wants an integer of 1 .. 65536"},
      {"cpus = \"8\"\n", "cpus wants an integer of 1 .. 65536, found \"8\""},
      {"grace_s = 100000\n", "grace_s wants an integer of 1 .. 65535"},
      {"hosts = \"login*\"\n", "hosts wants a list of texts in quotes, found \"login*\""},
      {"modules = [\"a\", 3]\n", "modules wants of each entry a name"},
      {"modules = [\n\"a\",\n\"b;c\"]\n", "a.toml:3: modules wants of each entry a name"},
      {"before = [\"a\\nb\"]\n", "before wants of each entry one line of text"},
      {"run_dir = \"a\\nb\"\n", "run_dir wants one line of text, found \"a b\""},
      {"environment = \"A=1\"\n", "environment wants a section [environment]"},
      {"[environment]\n\"A B\" = \"1\"\n", "a.toml:2: environment: \"A B\" is not a variable name"},
      {"[environment]\nA = 1\n", "a.toml:2: environment.A wants one line of text in quotes"},
      {"[environment]\nA = \"x\\ny\"\n", "a.toml:2: environment.A wants one line"}};
  for (const Case& one : cases) {
    const auto profile = parse_cluster_profile(one.text, "a.toml");
    INFO(one.text);
    REQUIRE_FALSE(profile.ok());
    INFO(profile.error().message);
    CHECK(profile.error().exit_code() == 2);
    CHECK(profile.error().message.starts_with("a.toml:"));
    CHECK(profile.error().message.find(one.part) != std::string::npos);
    CHECK(profile.error().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("profiles: the host chooses, a name overrides, none is plain", "[configs][clusters]") {
  const TempDirectory home;
  write_bytes(home / "a.toml", "hosts = [\"login*.a.org\"]\npartition = \"pa\"\n");
  write_bytes(home / "bravo.toml", "hosts = [\"b[0-9]\", \"c\"]\npartition = \"pb\"\n");
  write_bytes(home / "notes.txt", "no profile\n");
  const auto chosen = [&](const std::string& name, const std::string& host) {
    const auto profile = find_cluster_profile(home.path(), name, host);
    return profile.ok() ? profile->partition : "error: " + profile.error().message;
  };
  CHECK(chosen("", "login2.a.org") == "pa");
  CHECK(chosen("", "b7") == "pb");
  CHECK(chosen("", "b77").empty());
  CHECK(chosen("", "c") == "pb");
  CHECK(chosen("bravo", "login2.a.org") == "pb");
  CHECK(chosen((home / "a.toml").string(), "c") == "pa");
  CHECK_THAT(chosen("brav", "c"),
             Catch::Contains("--profile brav: no ") && Catch::Contains("\"bravo\"?"));
  CHECK_THAT(chosen("elsewhere", "c"), Catch::Contains("; there is a, bravo"));
  CHECK_THAT(chosen("x/y.toml", "c"), Catch::Contains("--profile x/y.toml: no such file"));
  const auto none = find_cluster_profile(home / "missing", "", "c");
  REQUIRE(none.ok());
  CHECK(none->name.empty());
  CHECK(none->time.empty());
  write_bytes(home / "c.toml", "hosts = [\"*\"]\n");
  CHECK_THAT(chosen("", "c"), Catch::Contains("c.toml: host \"c\" matches the profile bravo too"));
  CHECK(chosen("", "d").empty());
  write_bytes(home / "c.toml", "hosts = 1\n");
  CHECK_THAT(chosen("", "c"), Catch::Contains("c.toml:1: hosts wants"));
  write_bytes(home / "c.toml", "");
  CHECK_THAT(chosen("c", ""), Catch::Contains("c.toml: cannot be read as a cluster profile"));
}

TEST_CASE("profiles: times as Slurm writes them", "[configs][clusters]") {
  CHECK(seconds_of_job_time("30") == 1800);
  CHECK(seconds_of_job_time("1:30") == 90);
  CHECK(seconds_of_job_time("4:00:00") == 14400);
  CHECK(seconds_of_job_time("1-12") == 129600);
  CHECK(seconds_of_job_time("2-0:30") == 174600);
  CHECK(seconds_of_job_time("1-0:0:1") == 86401);
  for (const char* wrong : {"", "0", "x", "1h", "-1", "1:2:3:4", "1-", "1 2", "1:", "99999999"}) {
    INFO(wrong);
    CHECK_FALSE(seconds_of_job_time(wrong).has_value());
  }
}

TEST_CASE("profiles: those that are shipped load", "[configs][clusters][shipped]") {
  const auto generic = find_cluster_profile("", fmt::format("{}/{}", kFolder, "generic.toml"), "");
  INFO((generic.ok() ? "" : generic.error().message));
  REQUIRE(generic.ok());
  CHECK(generic->hosts.empty());
  const auto narval = find_cluster_profile(kFolder, "", "narval3");
  INFO((narval.ok() ? "" : narval.error().message));
  REQUIRE(narval.ok());
  CHECK(narval->name + ".toml" == "narval.toml");
  CHECK_FALSE(narval->modules.empty());
  const auto elsewhere = find_cluster_profile(kFolder, "", "my-desk");
  REQUIRE(elsewhere.ok());
  CHECK(elsewhere->name.empty());
}

}  // namespace
}  // namespace train::configs::cluster_profile_test
