#include <array>
#include <charconv>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "cli/syntax.hpp"

namespace train::cli {
namespace {

/// What the words were taken into, before they are known to be right.
struct ExportWords {
  ExportOptions options;
  std::int64_t step = 0;
  std::string dtype = "fp32";
  std::string size = "5GB";
};

/// "5GB", "512MiB", "4096": bytes; nothing if it is no size of 1 or more.
std::optional<std::uint64_t> size_of(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 8> kUnits = {
      {{"", 1},
       {"B", 1},
       {"KB", 1'000},
       {"MB", 1'000'000},
       {"GB", 1'000'000'000},
       {"KiB", std::uint64_t{1} << 10},
       {"MiB", std::uint64_t{1} << 20},
       {"GiB", std::uint64_t{1} << 30}}};
  std::uint64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, count);
  if (code != std::errc() || count == 0) {
    return std::nullopt;
  }
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  for (const auto& [name, bytes] : kUnits) {
    if (unit == name && count <= std::numeric_limits<std::uint64_t>::max() / bytes) {
      return count * bytes;
    }
  }
  return std::nullopt;
}

Result<Command> finish_export(const CLI::App& command, const ExportWords& words, bool step_given) {
  ExportOptions options = words.options;
  if (words.step < 0) {
    return usage_error(command, fmt::format("--step must be 0 or more, not {}", words.step));
  }
  if (step_given) {
    options.step = words.step;
  }
  if (options.out.empty()) {
    return usage_error(command, "--out is empty");
  }
  if (words.dtype != "fp32" && words.dtype != "bf16") {
    return usage_error(command,
                       fmt::format("--dtype must be fp32 or bf16, not \"{}\"", words.dtype));
  }
  options.bf16 = words.dtype == "bf16";
  const auto size = size_of(words.size);
  if (!size) {
    return usage_error(command, fmt::format("--max-file-bytes wants a size like 5GB, 512MiB or "
                                            "1000000, not \"{}\"",
                                            words.size));
  }
  options.max_file_bytes = *size;
  return Command(std::move(options));
}

}  // namespace

void describe_export(CLI::App& app, CommandSyntaxes& syntaxes) {
  CLI::App* command = app.add_subcommand(
      "export", "Write a checkpoint's weights as safetensors files for other programs.");
  const auto words = std::make_shared<ExportWords>();
  add_run_directory(*command, words->options.run_directory);
  command->add_option("--out", words->options.out, "Directory to make")
      ->required()
      ->type_name("DIR");
  const CLI::Option* step =
      add_integer(*command, "--step", words->step, "Checkpoint to use; the newest by default");
  command->add_option("--dtype", words->dtype, "fp32: the bits; bf16: rounded to the nearest")
      ->type_name("fp32|bf16")
      ->capture_default_str();
  command
      ->add_option("--max-file-bytes", words->size,
                   "Weights above this size go to several files with an index")
      ->type_name("SIZE")
      ->capture_default_str();
  syntaxes.push_back({command, [=] { return finish_export(*command, *words, step->count() > 0); }});
}

}  // namespace train::cli
