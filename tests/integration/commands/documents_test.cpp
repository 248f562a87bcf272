// The commands of README.md and docs/ do what they say, one after the other in one directory, as a
// reader types them: every line of a block that is marked `sh`. Models and data are small, and runs
// are cut short; what needs a cluster, a device or patience is marked `console`.

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/integration/sites/run_site.hpp"
#include "tests/support/inputs/small_tokenizer.hpp"

using namespace train;
using namespace train::test;

namespace {

struct Typed {
  std::string document, command;
  std::size_t line = 0;
  int exit_code = 0;
};

struct Document {
  std::vector<Typed> typed;
  Words unmarked;  ///< Commands outside of blocks that say how they are.
};

/// The commands of a document in their order; a line that ends with a backslash goes on.
Document read_document(const std::string& name, const std::string& text) {
  Document document;
  std::string fence, open;
  std::size_t number = 0;
  for (const std::string& line : lines_of(text)) {
    ++number;
    if (line.starts_with("```")) {
      fence = fence.empty() ? line.substr(3) + " " : "";
      continue;
    }
    if (fence == "sh ") {
      open += line;
      if (open.ends_with('\\')) {
        open.pop_back();
        continue;
      }
      const std::size_t code = open.find("# exit code ");
      const int wanted = code == std::string::npos ? 0 : std::stoi(open.substr(code + 12));
      if (!open.empty() && !open.starts_with('#')) {
        document.typed.push_back(
            {.document = name, .command = open, .line = number, .exit_code = wanted});
      }
      open.clear();
    } else if (fence != "console " &&
               (line.starts_with("    actortrain ") || line.starts_with("    ./dev ") ||
                line.starts_with("    build/release/") || line.starts_with("actortrain "))) {
      document.unmarked.push_back(fmt::format("{}:{}: {}", name, number, line));
    }
  }
  return document;
}

/// The words of a command, without its comment.
Words words_of(const std::string& command) {
  std::istringstream stream(command.substr(0, command.find(" #")));
  Words words;
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  return words;
}

/// A command that trains: the run's name, and the keys that all its starts must have alike.
struct Start {
  std::string run;
  std::set<std::string> fixed;
  bool changes = false;  ///< Another run of that name, or other keys, on purpose.
};

std::optional<Start> start_of(const Typed& typed) {
  const Words words = words_of(typed.command);
  if (words.size() < 3 || words[1] != "run" ||
      std::find(words.begin(), words.end(), "--dry-run") != words.end()) {
    return std::nullopt;
  }
  static const Words kMayChange = {"run.steps", "parallel.", "status."};
  Start start{.run = fs::path(words[2]).stem().string(), .fixed = {words[2]}};
  for (std::size_t i = 3; i < words.size(); ++i) {
    start.changes = start.changes || words[i] == "--fresh" || words[i] == "--accept-config";
    if (words[i - 1] != "--set") {
      continue;
    }
    if (words[i].starts_with("run.name=")) {
      start.run = words[i].substr(words[i].find('=') + 1);
    } else if (std::none_of(kMayChange.begin(), kMayChange.end(),
                            [&](const std::string& key) { return words[i].starts_with(key); })) {
      start.fixed.insert(words[i]);
    }
  }
  return start;
}

/// Commands that start the run of an earlier command with other keys than that.
Words clashes(const std::vector<Document>& documents) {
  std::map<std::string, Start> runs;
  Words found;
  for (const Document& document : documents) {
    for (const Typed& typed : document.typed) {
      const std::optional<Start> start = start_of(typed);
      if (!start) {
        continue;
      }
      const auto [earlier, first] = runs.emplace(start->run, *start);
      if (!first && !start->changes && earlier->second.fixed != start->fixed) {
        found.push_back(fmt::format("{}:{}: {}", typed.document, typed.line, typed.command));
      }
    }
  }
  return found;
}

/// README first, then the pages in the order of docs/index.md, each once.
std::vector<Document> documents() {
  const fs::path root = ACTORTRAIN_SOURCE_DIR;
  const std::string index = read_bytes(root / "docs/index.md");
  Words names = {"README.md"};
  for (std::size_t at = 0; (at = index.find("](", at)) != std::string::npos;) {
    at += 2;
    const std::string target = index.substr(at, index.find_first_of(")#", at) - at);
    const std::string name = "docs/" + target;
    if (target.find('/') == std::string::npos &&
        std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  std::vector<Document> found;
  for (const std::string& name : names) {
    found.push_back(read_document(name, read_bytes(root / name)));
  }
  return found;
}

std::string repeated(int count, const std::function<std::string(int)>& line) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += line(i) + "\n";
  }
  return text;
}

/// The files that a reader has, or replaces by others: models, data, programs of the repository.
class ReadersSite {
 public:
  ReadersSite() {
    const fs::path root = ACTORTRAIN_SOURCE_DIR;
    fs::copy(root / "configs", site_ / "configs", fs::copy_options::recursive);
    fs::create_directories(site_ / "build/release");
    fs::create_directories(site_ / "scripts");
    fs::create_directories(site_ / "bin");
    fs::create_directories(site_ / "home");
    fs::create_directories(site_ / "data");
    fs::copy(prepared_data(), site_ / "data/quickstart", fs::copy_options::recursive);
    write_programs();
    write_inputs();
    write_models();
  }

  [[nodiscard]] Ended type(const std::string& command) const {
    Process process({"/usr/bin/env", "-C", (site_ / "").string(),
                     "HOME=" + (site_ / "home").string(),
                     fmt::format("PATH={}:/usr/bin:/bin", (site_ / "bin").string()),
                     "BASH_ENV=" + (site_ / "functions.sh").string(), "/bin/bash", "-o", "pipefail",
                     "-c", command});
    return process.wait();
  }
  void write(const std::string& name, const std::string& text) const {
    write_bytes(site_ / name, text);
  }
  /// Keys of the lines of all runs' metrics.jsonl.
  [[nodiscard]] std::set<std::string> metrics() const {
    std::set<std::string> keys;
    for (const auto& run : fs::directory_iterator(site_ / "runs")) {
      for (const nlohmann::json& line : metrics_of(run.path())) {
        for (const auto& [key, value] : line.items()) {
          keys.insert(key);
        }
      }
    }
    return keys;
  }

 private:
  void script(const std::string& name, const std::string& text) const {
    write_bytes(site_ / name, "#!/bin/bash\nset -eu\n" + text);
    fs::permissions(site_ / name, fs::perms::owner_all);
  }

  /// `actortrain` cuts runs short, and ends a board that has said where it is; `./dev run` is it,
  /// and other commands of it are not run, but are there; scripts/smollm2.sh finds its model here.
  void write_programs() const {
    script("bin/actortrain", fmt::format(R"(
if [ "$1" = board ]; then
  [[ "$*" == *--listen* ]] || set -- "$@" --listen 127.0.0.1:0
  exec 3< <(exec {0} "${{@/%:8080/:0}}")
  read -r address <&3
  kill $!
  wait $!
  exit
fi
case "$1" in
  run) ;;
  quickstart) set -- "$@" --text notes.txt ;; # a package has a text
  *) exec {0} "$@" ;;
esac
typed="$*" steps=200
[[ "$typed" != *run.steps=* ]] || {{ steps="${{typed##*run.steps=}}" && steps="${{steps%% *}}"; }}
cut=(--set run.steps=$((steps / 50)) --set schedule.warmup_steps=1 --set eval.interval_steps=2
  --set checkpoint.interval_steps=2 --set runtime.threads=1)
case "$*" in
  *quickstart*) cut+=(--set data.sequence_length=32 --set batch.micro_batch=1 --set eval.lanes=1) ;;
esac
case "$*" in *steps_per_job=*) cut+=(--set run.steps_per_job=2) ;; esac
case "$*" in
  *unlearn*) cut+=(--set objective.first_layer=1 --set objective.last_layer=0
    --set objective.layer_stride=1 --set objective.steps_per_layer=2) ;;
esac
case "$*" in *listen=*) cut+=(--set status.listen=127.0.0.1:0) ;; esac
exec {0} "$@" "${{cut[@]}}")",
                                         program()));
    fs::create_symlink(program(), site_ / "build/release/actortrain");
    script("dev", fmt::format(R"(
[ "$1" != run ] || exec "{}/bin/actortrain" "$@"
grep -q "^  $1\b" "{}/dev")",
                              (site_ / "").string(), ACTORTRAIN_SOURCE_DIR));
    // tests/bundle installs a wheel. A function, as an environment that is active has a pip first.
    write_bytes(site_ / "functions.sh", R"(pip() { [ "$1" = install ]; })");
    script("scripts/smollm2.sh", R"([ -d "$1" ])");
    script("bin/cmake", fmt::format(R"(exec /usr/bin/env PATH=/usr/bin:/bin cmake \
  "${{@/#build\/release/{}}}")",
                                    ACTORTRAIN_BINARY_DIR));
  }

  void write_inputs() const {
    const auto word = [](int i) { return fmt::format("word{} and more of it {}", i, i * 7); };
    write("texts.jsonl", repeated(200, [&](int i) {
            return fmt::format(R"({{"text": "It was the best of times, {}."}})", word(i));
          }));
    write("notes.txt", repeated(100, word));
    write("retain.jsonl", read_bytes(site_ / "texts.jsonl"));
    write("forget.jsonl", read_bytes(site_ / "texts.jsonl"));
    write("keywords.txt", "best of\ntimes\n");
    write("chats.jsonl", repeated(60, [&](int i) {
            return fmt::format(R"({{"messages": [{{"role": "user", "content": "Say {}"}}, )"
                               R"({{"role": "assistant", "content": "{}"}}]}})",
                               i, word(i));
          }));
    write("other_chats.jsonl", read_bytes(site_ / "chats.jsonl"));
    write("pairs.jsonl", repeated(60, [&](int i) {
            return fmt::format(R"({{"prompt": "Say {}", "chosen": "{}", "rejected": "no {}"}})", i,
                               word(i), i);
          }));
    write("answers.jsonl", repeated(400, [&](int i) {
            return fmt::format(R"({{"prompt": "Say {}", "completion": "{}", "label": {}}})", i,
                               word(i), i % 2 == 0);
          }));
    write("questions.jsonl", repeated(8, [&](int i) {
            return fmt::format(
                R"({{"question": "What is {}?", "choices": ["a", "b", "c", "d"], "answer": {}}})",
                word(i), i % 4);
          }));
  }

  void write_models() const {
    const auto make = [&](const std::string& name, const std::string& config) {
      write(name + ".json", config);
      write(name + ".toml", fmt::format(R"([run]
name = "made_{0}"
[model]
config = "{0}.json"
[data]
dir = "data/quickstart"
sequence_length = 32
)",
                                        name));
      const Ended trained = type(fmt::format(
          "actortrain run {0}.toml && actortrain export runs/made_{0} --format hf --out {0}",
          name));
      INFO(trained.err);
      REQUIRE(trained.exit_code == 0);
      write(name + "/tokenizer.json", small_tokenizer_json());
      write(name + "/tokenizer_config.json",
            R"({"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n)"
            R"({% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"})");
    };
    make("SmolLM2", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
      "vocab_size": 512, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-5,
      "max_position_embeddings": 2048, "rope_theta": 10000.0, "tie_word_embeddings": true})");
    make("pythia", R"({"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"],
      "vocab_size": 512, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
      "num_attention_heads": 2, "rotary_pct": 0.25, "rotary_emb_base": 10000, "hidden_act": "gelu",
      "max_position_embeddings": 2048, "use_parallel_residual": true, "layer_norm_eps": 1e-5,
      "tie_word_embeddings": false})");
  }

  RunSite site_;
};

/// Keys in the first column of the table of docs/watching.md, "Metrics".
Words documented_metrics() {
  const std::string text = read_bytes(fs::path(ACTORTRAIN_SOURCE_DIR) / "docs/watching.md");
  const std::size_t begin = text.find("\n## Metrics\n");
  REQUIRE(begin != std::string::npos);
  Words keys;
  for (const std::string& line :
       lines_of(text.substr(begin, text.find("\n## ", begin + 1) - begin))) {
    const std::string column = line.substr(0, line.find(" | "));
    for (std::size_t at = 0;
         line.starts_with("| `") && (at = column.find('`', at)) != std::string::npos;) {
      const std::size_t end = column.find('`', at + 1);
      keys.push_back(column.substr(at + 1, end - at - 1));
      at = end + 1;
    }
  }
  return keys;
}

/// Every key of the runs is in the table ("val_" and an objective's key is, too), and every key of
/// the table in a run. A key that ends in * stands for all that begin so.
void check_metrics_table(const std::set<std::string>& written) {
  const Words documented = documented_metrics();
  const auto is = [](const std::string& key, const std::string& name) {
    return name.ends_with('*') ? key.starts_with(name.substr(0, name.size() - 1)) : key == name;
  };
  Words missing, unknown;
  for (const std::string& key : written) {
    const std::string plain = key.starts_with("val_") ? key.substr(4) : key;
    if (std::none_of(documented.begin(), documented.end(),
                     [&](const std::string& name) { return is(key, name) || is(plain, name); })) {
      missing.push_back(key);
    }
  }
  for (const std::string& name : documented) {
    if (std::none_of(written.begin(), written.end(),
                     [&](const std::string& key) { return is(key, name); })) {
      unknown.push_back(name);
    }
  }
  CHECK(missing == Words());
  CHECK(unknown == Words());
}

}  // namespace

TEST_CASE("documents: every command is in a block that says whether it runs",
          "[integration][documents]") {
  Words unmarked;
  std::size_t typed = 0;
  for (const Document& document : documents()) {
    unmarked.insert(unmarked.end(), document.unmarked.begin(), document.unmarked.end());
    typed += document.typed.size();
  }
  CHECK(unmarked == Words());
  CHECK(typed > 30);
  const Document sample = read_document(
      "a.md", "    actortrain run x\n```sh\nactortrain a \\\n  b   # exit code 75\n```\n");
  CHECK(sample.unmarked.size() == 1);
  REQUIRE(sample.typed.size() == 1);
  CHECK(sample.typed[0].exit_code == 75);
  CHECK(sample.typed[0].command.starts_with("actortrain a   b"));
}

TEST_CASE("documents: a run's name is used again only to go on with it",
          "[integration][documents]") {
  CHECK(clashes(documents()) == Words());
  const auto judge = [](const std::string& commands) {
    return clashes({read_document("a.md", "```sh\n" + commands + "```\n")}).size();
  };
  const std::string first = "./dev run a/b.toml --set data.seed=1\n";
  CHECK(judge(first + first + "actortrain run a/b.toml --set run.steps=9 --set data.seed=1\n") ==
        0);
  CHECK(judge(first + "actortrain run a/b.toml --set run.name=c  # another\n") == 0);
  CHECK(judge(first + "actortrain run c.toml --set run.name=b\n") == 1);
  CHECK(judge(first + "actortrain run a/b.toml\n") == 1);
  CHECK(judge(first + "actortrain run a/b.toml --fresh\n") == 0);
}

TEST_CASE("documents: the commands of README and docs run as typed, in their order",
          "[.full][integration][documents]") {
  const ReadersSite site;
  for (const Document& document : documents()) {
    for (const Typed& typed : document.typed) {
      const Ended ended = site.type(typed.command);
      INFO(fmt::format("{}:{}: {}\n{}{}", typed.document, typed.line, typed.command, ended.out,
                       ended.err));
      CHECK(ended.exit_code == typed.exit_code);
      CHECK_FALSE(has(ended.err, "nothing to do"));  // The run of another command.
    }
  }
  // Keys of the table that those runs lack: other runs of tests leave the measurement of MFU out.
  const Ended diagnosed = site.type(
      "env -u ACTORTRAIN_TEST_NO_PEAK actortrain run configs/quickstart.toml "
      "--set run.name=diagnosed --set optimizer.name=dana-star-mk4");
  INFO(diagnosed.err);
  CHECK(diagnosed.exit_code == 0);
  const Ended corrected = site.type(
      "actortrain run configs/quickstart.toml --set run.name=corrected --set model.experts=8 "
      "--set model.experts_per_token=2 --set model.expert_hidden=32 "
      "--set model.router=sigmoid_normalised --set model.router_bias_rate=0.01");
  INFO(corrected.err);
  CHECK(corrected.exit_code == 0);
  CHECK(site.type("cp -r data/quickstart data/second").exit_code == 0);
  const Ended mixed = site.type(
      "actortrain run configs/quickstart.toml --set run.name=mixed "
      "--set 'data.sources=[{dir=\"data/quickstart\", weight=3}, {dir=\"data/second\"}]'");
  INFO(mixed.err);
  CHECK(mixed.exit_code == 0);
  check_metrics_table(site.metrics());
}
