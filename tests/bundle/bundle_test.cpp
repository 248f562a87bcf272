// The bundle of `./dev bundle`, on a machine that has nothing: a root directory with its files,
// /dev and /proc alone, and a shell that is linked statically where there is one: no C library. The
// one that checks a GPU wants glibc. Skipped, with a line that says so, where this may not be made.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <regex>

#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/http_client.hpp"
#include "tests/support/processes/process.hpp"

namespace train::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr std::uintmax_t kLargestBundle = 60'000'000;  // bytes

/// The words that run a shell with mounts of its own, as root or as a user who may be root there.
std::optional<Words> namespace_words() {
  for (const Words& words : {Words{"/usr/bin/unshare", "-m"}, Words{"/usr/bin/unshare", "-rm"}}) {
    Words trial = words;
    trial.insert(trial.end(), {"mount", "--make-rprivate", "/"});
    if (fs::exists(words.front()) && Process(trial).wait().exit_code == 0) {
      return words;
    }
  }
  return std::nullopt;
}

Ended succeed(const Words& words) {
  Ended ended = Process(words).wait(std::chrono::minutes(5));  // Packing takes its time.
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return ended;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

enum class CLibrary : std::uint8_t { none, glibc };

/// A root directory with that C library and, in /opt, the bundle. Nothing of it is the build's.
class BareMachine {
 public:
  BareMachine(Words namespaces, const fs::path& bundle, CLibrary c_library)
      : namespaces_(std::move(namespaces)) {
    for (const char* const directory : {"dev", "proc", "tmp", "opt"}) {
      fs::create_directories(root_ / directory);
    }
    if (c_library == CLibrary::glibc) {
      add_glibc();
    }
    succeed({"/usr/bin/tar", "-C", (root_ / "opt").string(), "-xzf", bundle.string()});
    if (fs::exists("/bin/busybox")) {
      fs::create_directories(root_ / "bin");
      fs::copy_file("/bin/busybox", root_ / "bin/sh");
    }
    home_ = fs::path("/opt") / fs::path(bundle.stem()).stem();
  }

  /// A file's path as it is from outside.
  [[nodiscard]] fs::path file(const std::string& path) const { return root_ / path.substr(1); }
  /// Whether it has /bin/sh.
  [[nodiscard]] bool has_shell() const { return fs::exists(file("/bin/sh")); }
  /// The bundle's directory, as it is inside.
  [[nodiscard]] std::string home() const { return home_.string(); }

  /// The words that start a program of the bundle, in there, with no environment.
  [[nodiscard]] Words words_of(const Words& arguments,
                               const std::string& program = "actortrain") const {
    Words words = namespaces_;
    words.insert(words.end(), {"bash", "-c",
                               "mount --make-rprivate / && mount --rbind /dev \"$0/dev\" && "
                               "mount --rbind /proc \"$0/proc\" && PATH=$PATH:/usr/sbin:/sbin && "
                               "exec env -i \"$(command -v chroot)\" \"$0\" \"$@\"",
                               root_.path().string()});
    if (has_shell()) {  // The shell becomes the program.
      words.insert(words.end(), {"/bin/sh", "-c", "exec \"$0\" \"$@\""});
    }
    words.push_back(home() + "/bin/" + program);
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  [[nodiscard]] Ended call(const Words& arguments,
                           const std::string& program = "actortrain") const {
    return Process(words_of(arguments, program)).wait();
  }

 private:
  void add_glibc() const {
    for (const char* const directory : {"lib64", "lib/x86_64-linux-gnu"}) {
      fs::create_directories(root_ / directory);
    }
    fs::copy_file("/lib64/ld-linux-x86-64.so.2", root_ / "lib64/ld-linux-x86-64.so.2");
    for (const char* const library : {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1",
                                      "libpthread.so.0", "libresolv.so.2", "libmvec.so.1"}) {
      const std::string path = std::string("lib/x86_64-linux-gnu/") + library;
      fs::copy_file(fs::path("/") / path, root_ / path);
    }
  }

  Words namespaces_;
  TempDirectory root_;
  fs::path home_;
};

/// Checks that every page of an unpacked bundle links only to what the bundle has.
void check_links(const fs::path& home) {
  const std::regex link(R"(\]\(([^)\s:#]+)[^)\s:]*\))");
  std::size_t pages = 0;
  for (const auto& entry : fs::recursive_directory_iterator(home)) {
    if (entry.path().extension() != ".md") {
      continue;
    }
    ++pages;
    const std::string text = read_bytes(entry.path());
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
      INFO(entry.path() << ": " << at->str(1));
      CHECK(fs::exists(entry.path().parent_path() / at->str(1)));
    }
  }
  CHECK(pages > 10);  // Its own, that of the run files, and those of the recipes.
}

/// What scripts/bundle.sh makes of this build, in `out`.
fs::path packed(const TempDirectory& out, const Words& options) {
  Words words = {ACTORTRAIN_SOURCE_DIR "/scripts/bundle.sh", ACTORTRAIN_BINARY_DIR,
                 out.path().string()};
  words.insert(words.end(), options.begin(), options.end());
  const std::string said = succeed(words).out;
  const fs::path bundle = said.substr(0, said.find('\n'));
  REQUIRE(fs::exists(bundle));
  fmt::print("bundle: {}, {:.1f} MB\n", bundle.filename().string(),
             static_cast<double>(fs::file_size(bundle)) * 1e-6);
  CHECK(fs::file_size(bundle) <= kLargestBundle);
  return bundle;
}

/// The bundle of the program, made once for all cases.
const fs::path& program_bundle() {
  static const TempDirectory out;
  static const fs::path bundle = packed(out, {});
  return bundle;
}

Ended must(const Ended& ended) {
  INFO(ended.out << ended.err);
  CHECK(ended.signal == 0);
  REQUIRE(ended.exit_code == 0);
  return ended;
}

/// The words of a short quickstart on two ranks.
Words quickstart(const std::string& directory, const Words& keys) {
  Words words = {"quickstart", directory};
  for (const char* const key :
       {"data.sequence_length=32", "eval.lanes=1", "run.sample_tokens=0", "runtime.threads=1",
        "schedule.warmup_steps=1", "parallel.ranks=2", "parallel.strategy=full"}) {
    words.insert(words.end(), {"--set", key});
  }
  for (const std::string& key : keys) {
    words.insert(words.end(), {"--set", key});
  }
  return words;
}

/// By the text of the bundle alone, and in no directory of others.
void check_quickstart(const BareMachine& machine) {
  must(machine.call(quickstart("/first", {"run.steps=8"})));
  CHECK(count_of(read_bytes(machine.file("/first/runs/quickstart/metrics.jsonl")),
                 "\"grad_norm\"") == 8);
  const Ended other = machine.call(quickstart("/opt", {}));
  CHECK(other.exit_code == 2);
  CHECK(count_of(other.err, "\n") == 1);
  CHECK(other.err.find("it has files already") != std::string::npos);
}

/// Killed at some step, with a board, and begun again: workers, too, are started by the launcher.
void check_kill(const BareMachine& machine) {
  const Words endless =
      quickstart("/first", {"run.name=killed", "run.steps=1000000", "schedule.name=constant",
                            "checkpoint.interval_steps=2"});
  const auto has_saved = [&] {
    std::error_code none;  // The directory comes with the run.
    const fs::directory_iterator saved(machine.file("/first/runs/killed/checkpoints"), none);
    return std::any_of(begin(saved), end(saved), [](const fs::directory_entry& entry) {
      return entry.path().filename().string().starts_with("step-");
    });
  };
  Words watched = endless;
  watched.insert(watched.end(), {"--set", "status.listen=127.0.0.1:0"});
  Process killed(machine.words_of(watched));
  const bool began = killed.until(has_saved);
  INFO(killed.err());
  REQUIRE(began);
  const std::string said = killed.err();
  const std::size_t url = said.find("board url=") + std::string("board url=").size();
  const auto answer = HttpClient::get(said.substr(url, said.find('\n', url) - url), "/runs.json");
  CHECK(answer.status == 200);
  CHECK(answer.body.find("killed") != std::string::npos);
  killed.send(SIGKILL);
  CHECK(killed.wait().signal == SIGKILL);
  Words again = endless;
  again.insert(again.end(), {"--set", "run.steps_per_job=2"});
  const Ended resumed = machine.call(again);
  INFO(resumed.err);
  CHECK(resumed.exit_code == 75);
  CHECK(resumed.err.find("resumed step=") != std::string::npos);
}

}  // namespace

TEST_CASE("bundle: it trains where there is no C library and nothing else", "[bundle][.full]") {
  const auto namespaces = namespace_words();
  if (!namespaces) {
    fmt::print("skipped: bundle: a mount namespace of its own needs root\n");
    return;
  }
  const fs::path& bundle = program_bundle();
  const BareMachine machine(*namespaces, bundle, CLibrary::none);
  for (const auto& library : fs::directory_iterator(machine.file(machine.home() + "/lib"))) {
    const std::string name = library.path().filename().string();
    INFO(name);  // These belong to the machine's driver and toolkit.
    CHECK(name.find("libcu") == std::string::npos);
  }
  CHECK(fs::exists(machine.file(machine.home() + "/licences/librocksdb-dev")));
  check_links(machine.file(machine.home()));
  CHECK(fs::exists(machine.file(machine.home() + "/configs/clusters/generic.toml")));
  CHECK_FALSE(fs::exists(machine.file(machine.home() + "/configs/clusters/cluster_profile.cpp")));

  const Ended version = must(machine.call({"--version"}));
  CHECK(version.out == "actortrain " ACTORTRAIN_VERSION "\n");
  CHECK(bundle.filename() == "actortrain-" ACTORTRAIN_VERSION "-linux-x86_64.tar.gz");

  check_quickstart(machine);
  check_kill(machine);
  const Ended refused =
      machine.call(quickstart("/first", {"runtime.device=cuda", "run.name=device"}));
  INFO(refused.err);
  CHECK(refused.exit_code == 2);
  CHECK(count_of(refused.err, "error ") == 1);
  CHECK(refused.err.find("CUDA") != std::string::npos);

  // Nothing but the bundle had these libraries to offer.
  fs::remove(machine.file(machine.home() + "/lib/libstdc++.so.6"));
  CHECK(machine.call({"--version"}).exit_code == 127);
}

TEST_CASE("bundle: a processor without AVX2 gets a line", "[bundle][.full]") {
  const std::string emulator = "/usr/bin/qemu-x86_64";
  if (!fs::exists(emulator)) {
    fmt::print("skipped: bundle: no emulator; Debian: apt-get install qemu-user\n");
    return;
  }
  const TempDirectory out;
  const fs::path& bundle = program_bundle();
  succeed({"/usr/bin/tar", "-C", out.path().string(), "-xzf", bundle.string()});
  const std::string home = (out.path() / fs::path(bundle.stem()).stem()).string();
  // Of the launcher: what it starts is not emulated.
  must(Process({emulator, "-cpu", "core2duo", home + "/bin/actortrain", "--version"}).wait());
  const std::string lib = home + "/lib";
  const Ended refused = Process({emulator, "-cpu", "core2duo", lib + "/ld-linux-x86-64.so.2",
                                 "--library-path", lib, lib + "/actortrain", "--version"})
                            .wait();
  INFO(refused.out << refused.err);
  CHECK(refused.signal == 0);
  CHECK(refused.exit_code == 2);
  CHECK(count_of(refused.err, "\n") == 1);
  CHECK(refused.err.find("AVX2 and FMA") != std::string::npos);
}

TEST_CASE("bundle: what checks a GPU needs nothing either", "[bundle][.full]") {
  const auto namespaces = namespace_words();
  if (!namespaces) {
    return;  // Said above.
  }
  const TempDirectory out;
  const TempDirectory tokens;
  for (const char* const name : {"train.bin", "val.bin", "meta.json"}) {
    write_bytes(tokens / name, "{}");
  }
  const fs::path bundle = packed(out, {"--gpu-check", tokens.path().string()});
  CHECK(bundle.filename() == "actortrain-" ACTORTRAIN_VERSION "-gpu-check-linux-x86_64.tar.gz");
  const BareMachine machine(*namespaces, bundle, CLibrary::glibc);
  CHECK(fs::exists(machine.file(machine.home() + "/data/quickstart/train.bin")));
  CHECK(fs::exists(machine.file(machine.home() + "/share/peers/torch_step.py")));
  CHECK(fs::exists(machine.file(machine.home() + "/share/compute_sanitizer.sh")));
  CHECK(must(machine.call({"--version"})).out == "actortrain " ACTORTRAIN_VERSION "\n");
  must(machine.call({"[fixtures]"}, "test_engine"));
  // A device may be there in spite of all: then they do what they are for, which takes its time.
  if (const Ended bench = must(machine.call({"--seconds", "0"}, "bench_gpu"));
      bench.out.starts_with("bench_gpu: skipped: ")) {
    CHECK(count_of(bench.out, "\n") == 1);
    for (const char* const program : {"test_kernels", "test_engine"}) {
      CHECK(count_of(must(machine.call({"[gpu]"}, program)).out, "skipped: ") == 1);
    }
  }
}

}  // namespace train::test
