#pragma once

#include <unistd.h>

#include <array>
#include <regex>

#include "tests/integration/held_ports.hpp"
#include "tests/integration/sites/run_site.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/processes/script.hpp"

namespace train::test {

/// A real Slurm on this machine with two nodes, n1 and n2: munged, slurmctld and two slurmd as
/// children of the test, without anything of theirs outside one directory. They are killed with
/// this object, which may outlive the cases of a test: jobs are theirs to end (SlurmJobs).
class SlurmCluster {
 public:
  /// Started where it can be: why_not() says.
  SlurmCluster() : why_not_(start()) {}
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  /// Empty, or why there is no cluster.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

  /// No job is left, and both nodes are there.
  void end_jobs() {
    ask({"scancel", "--full", "--signal=KILL", "--user=" + user()});
    ask({"scancel", "--user=" + user()});
    CHECK(comes_true([&] {
      return !has(ask({"squeue", "-h", "-t", "all", "-O", "state"}), "ING");
    }));
    if (second_lost_) {
      launch({"slurmd", "-D", "-N", "n2"});
      ask({"scontrol", "update", "NodeName=n2", "State=RESUME"});
      second_lost_ = false;
    }
    CHECK(comes_true([&] { return idle(); }));
  }

  /// What a program of Slurm's says on its standard output.
  std::string ask(Words words) const { return call(std::move(words)).out; }
  /// How it ends.
  Ended call(Words words) const {
    words.front() = found(words.front());
    return Process(std::move(words), home_.path()).wait();
  }

  /// "COMPLETED", "PENDING", ...
  [[nodiscard]] std::string state(int job) const { return field(job, "JobState"); }
  [[nodiscard]] int restarts(int job) const {
    const std::string text = field(job, "Restarts");
    return text.empty() ? -1 : std::stoi(text);
  }
  [[nodiscard]] std::string field(int job, const std::string& name) const {
    const std::string text = ask({"scontrol", "-o", "show", "job", fmt::format("{}", job)});
    std::smatch match;
    return std::regex_search(text, match, std::regex(name + "=(\\S+)")) ? match[1].str() : "";
  }

  /// A job that is queued again is held back for six seconds, so that a node cannot mistake it for
  /// the one that it has just ended. The clock of that has whole seconds: two of them are enough.
  void let_go(int job) const {
    ask({"scontrol", "update", fmt::format("JobId={}", job), "StartTime=now+2"});
  }

  /// Node n2 is lost, and its daemon with it; Slurm is told so: by itself it waits long for a
  /// silent node. Its tasks are the caller's to end.
  void lose_second_node() {
    second_lost_ = true;
    daemons_.back()->send(SIGKILL);
    daemons_.back()->wait();
    ask({"scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=lost"});
  }

 private:
  std::string start() {
    for (const char* name : {"munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol"}) {
      if (found(name).empty()) {
        return fmt::format("there is no program {}; install munge slurmctld slurmd slurm-client",
                           name);
      }
    }
    fs::permissions(home_.path(), fs::perms(0755));  // munged wants its socket to be in reach
    write_files();
    conf_ = std::make_unique<EnvironmentVariable>("SLURM_CONF", (home_ / "slurm.conf").string());
    launch({"munged", "-F", "--key-file=" + at("munge.key"), "--socket=" + at("munge.socket"),
            "--pid-file=" + at("munged.pid"), "--log-file=" + at("munged.log"),
            "--seed-file=" + at("munge.seed")});
    if (!daemons_.back()->until([&] { return fs::exists(home_ / "munge.socket"); })) {
      return "munged did not start: " + daemons_.back()->err();
    }
    launch({"slurmctld", "-D"});
    launch({"slurmd", "-D", "-N", "n1"});
    launch({"slurmd", "-D", "-N", "n2"});
    return daemons_.back()->until([&] { return idle(); })
               ? ""
               : "its nodes did not come up: " + last_log();
  }
  bool idle() const { return ask({"sinfo", "-h", "-o", "%D %t"}) == "2 idle\n"; }
  static std::string found(const std::string& name) {
    for (const char* directory :
         {"/usr/sbin/", "/usr/bin/", "/usr/local/sbin/", "/usr/local/bin/"}) {
      if (::access((directory + name).c_str(), X_OK) == 0) {
        return directory + name;
      }
    }
    return "";
  }
  static std::string user() { return fmt::format("{}", ::getuid()); }
  [[nodiscard]] std::string at(const char* name) const { return (home_ / name).string(); }

  void launch(Words words) {
    words.front() = found(words.front());
    daemons_.push_back(std::make_unique<Process>(std::move(words), home_.path()));
  }

  [[nodiscard]] std::string last_log() const {
    const fs::path log = home_ / "slurmctld.log";
    const Words lines = fs::exists(log) ? lines_of(read_bytes(log)) : Words();
    return lines.empty() ? daemons_.back()->err() : lines.back();
  }

  void write_files() const {
    write_bytes(home_ / "munge.key", std::string(64, 'k') + home_.path().string());
    fs::permissions(home_ / "munge.key", fs::perms(0600));
    std::array<char, 256> host{};
    REQUIRE(::gethostname(host.data(), host.size() - 1) == 0);
    const std::string name(host.data());
    fs::create_directories(home_ / "state");
    fs::create_directories(home_ / "spool");
    // A requeued job is held back for cred_expire and a second. No cgroups, no accounting. Jobs of
    // the partition `urgent` take the nodes from others, which are queued again. KillWait: a job
    // that is told to end saves within it, on a busy machine too.
    write_bytes(
        home_ / "slurm.conf",
        fmt::format(R"(ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={home}/munge.socket,cred_expire=5
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool/%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.%n.log
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
PropagateResourceLimits=NONE
MailProg=/bin/true
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=60
JobRequeue=1
MinJobAge=3600
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
NodeName=n1 NodeHostname=n1 NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=2000
NodeName=n2 NodeHostname=n2 NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=2000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
)",
                    fmt::arg("host", name.substr(0, name.find('.'))), fmt::arg("port", ports_[0]),
                    fmt::arg("first", ports_[1]), fmt::arg("second", ports_[2]),
                    fmt::arg("user", user_name()), fmt::arg("home", home_.path().string())));
    write_bytes(home_ / "cgroup.conf", "CgroupPlugin=cgroup/v1\n");
  }

  static std::string user_name() {
    const Ended ended = Process({"/usr/bin/id", "-un"}).wait();
    return ended.out.substr(0, ended.out.find('\n'));
  }

  TempDirectory home_{"/tmp"};  // short: paths of sockets have 107 bytes
  HeldPorts<3> ports_;
  std::unique_ptr<EnvironmentVariable> conf_;
  std::vector<std::unique_ptr<Process>> daemons_;
  bool second_lost_ = false;
  std::string why_not_;  // last: all else is there when it starts
};

/// Jobs of one case on the cluster of all cases, which starts with the first. They end with this
/// object.
class SlurmJobs {
 public:
  SlurmJobs() = default;
  SlurmJobs(const SlurmJobs&) = delete;
  SlurmJobs& operator=(const SlurmJobs&) = delete;
  ~SlurmJobs() {
    try {
      if (cluster().why_not().empty()) {
        cluster().end_jobs();
      }
    } catch (const Catch::TestFailureException&) {  // Counted when it was thrown.
    }
  }

  static SlurmCluster& cluster() {
    static SlurmCluster one;
    return one;
  }
  /// True where there is no cluster; says why.
  static bool skipped() {
    const std::string& why = cluster().why_not();
    if (!why.empty()) {
      fmt::print("skipped: slurm: {}\n", why);
    }
    return !why.empty();
  }
};

}  // namespace train::test
