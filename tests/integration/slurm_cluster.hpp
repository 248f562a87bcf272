#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <regex>

#include "tests/integration/run_site.hpp"
#include "tests/support/processes/script.hpp"

namespace train::test {

/// Numbers of ports of this machine that nobody listens on.
template <std::size_t N>
std::array<int, N> free_ports() {
  std::array<int, N> ports{};
  std::array<int, N> sockets{};
  for (std::size_t i = 0; i < N; ++i) {
    sockets[i] = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(sockets[i], any, size) == 0);
    REQUIRE(::getsockname(sockets[i], any, &size) == 0);
    ports[i] = ntohs(address.sin_port);
  }
  for (const int socket : sockets) {
    ::close(socket);
  }
  return ports;
}

/// A real Slurm on this machine with two nodes, n1 and n2: munged, slurmctld and two slurmd as
/// children of the test, without anything of theirs outside one directory. Ends with this object,
/// its jobs first.
class SlurmCluster {
 public:
  SlurmCluster() = default;
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;
  ~SlurmCluster() {
    if (up_) {
      ask({"scancel", "--full", "--signal=KILL", "--user=" + user()});
      ask({"scancel", "--user=" + user()});
      within(15, [&] {
        return ask({"squeue", "-h", "-t", "all", "-O", "state"}).find("ING") == std::string::npos;
      });
    }
    for (auto daemon = daemons_.rbegin(); daemon != daemons_.rend(); ++daemon) {
      (*daemon)->send(SIGTERM);
      (*daemon)->until([] { return false; }, std::chrono::seconds(10));
    }
  }

  /// Empty, or why there is no cluster.
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
    if (!within(10, [&] { return fs::exists(home_ / "munge.socket"); })) {
      return "munged did not start: " + daemons_.back()->err();
    }
    launch({"slurmctld", "-D"});
    launch({"slurmd", "-D", "-N", "n1"});
    launch({"slurmd", "-D", "-N", "n2"});
    up_ = within(30, [&] { return ask({"sinfo", "-h", "-o", "%D %t"}) == "2 idle\n"; });
    return up_ ? "" : "its nodes did not come up within 30 s: " + last_log();
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
  void lose_second_node() const {
    daemons_.back()->send(SIGKILL);
    ask({"scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=lost"});
  }

  template <class Condition>
  static bool within(int seconds, Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    return true;
  }

 private:
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
    const auto ports = free_ports<3>();
    fs::create_directories(home_ / "state");
    fs::create_directories(home_ / "spool");
    // A requeued job is held back for cred_expire and a second. No cgroups, no accounting. Jobs of
    // the partition `urgent` take the nodes from others, which are queued again.
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
KillWait=10
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
                    fmt::arg("host", name.substr(0, name.find('.'))), fmt::arg("port", ports[0]),
                    fmt::arg("first", ports[1]), fmt::arg("second", ports[2]),
                    fmt::arg("user", user_name()), fmt::arg("home", home_.path().string())));
    write_bytes(home_ / "cgroup.conf", "CgroupPlugin=cgroup/v1\n");
  }

  static std::string user_name() {
    const Ended ended = Process({"/usr/bin/id", "-un"}).wait();
    return ended.out.substr(0, ended.out.find('\n'));
  }

  TempDirectory home_{"/tmp"};  // short: paths of sockets have 107 bytes
  std::unique_ptr<EnvironmentVariable> conf_;
  std::vector<std::unique_ptr<Process>> daemons_;
  bool up_ = false;
};

}  // namespace train::test
