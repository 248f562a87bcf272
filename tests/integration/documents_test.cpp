// The commands of README.md and docs/ do what they say, one after the other in one directory, as a
// reader types them: every line of a block that is marked `sh`. Models and data are small, and runs
// are cut short; what needs a cluster, a device or patience is marked `console`.

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/integration/run_site.hpp"
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
  std::map<std::string, std::string> run_files;  ///< By run.name: what is shown as `toml`.
  Words unmarked;  ///< Commands outside of blocks that say how they are.
};

/// The commands of a document in their order; a line that ends with a backslash goes on.
Document read_document(const std::string& name, const std::string& text) {
  Document document;
  std::string fence, open, toml;
  std::size_t number = 0;
  for (const std::string& line : lines_of(text)) {
    ++number;
    if (line.starts_with("```")) {
      const std::size_t at = toml.find("[run]\nname = \"");
      if (at != std::string::npos) {
        const std::size_t begin = at + std::string("[run]\nname = \"").size();
        document.run_files[toml.substr(begin, toml.find('"', begin) - begin)] = toml;
      }
      toml.clear();
      fence = fence.empty() ? line.substr(3) + " " : "";
      continue;
    }
    if (fence == "toml ") {
      toml += line + "\n";
    } else if (fence == "sh ") {
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
                     fmt::format("PATH={}:/usr/bin:/bin", (site_ / "bin").string()), "/bin/bash",
                     "-o", "pipefail", "-c", command});
    return process.wait();
  }
  void write(const std::string& name, const std::string& text) const {
    write_bytes(site_ / name, text);
  }

 private:
  void script(const std::string& name, const std::string& text) const {
    write_bytes(site_ / name, "#!/bin/bash\nset -eu\n" + text);
    fs::permissions(site_ / name, fs::perms::owner_all);
  }

  /// `actortrain` cuts runs short; `./dev run` is it, and other commands of it are not run, but are
  /// there; scripts/smollm2.sh finds its model here.
  void write_programs() const {
    script("bin/actortrain", fmt::format(R"(
[ "$1" = run ] || exec {0} "$@"
cut=(--set run.steps=4 --set schedule.warmup_steps=1 --set eval.interval_steps=2
  --set checkpoint.interval_steps=2)
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

TEST_CASE("documents: the commands of README and docs run as typed, in their order",
          "[.full][integration][documents]") {
  const ReadersSite site;
  for (const Document& document : documents()) {
    for (const auto& [name, text] : document.run_files) {
      site.write(name + ".toml", text);
    }
    for (const Typed& typed : document.typed) {
      const Ended ended = site.type(typed.command);
      INFO(fmt::format("{}:{}: {}\n{}{}", typed.document, typed.line, typed.command, ended.out,
                       ended.err));
      CHECK(ended.exit_code == typed.exit_code);
    }
  }
}
