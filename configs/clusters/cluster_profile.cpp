#include "configs/clusters/cluster_profile.hpp"

#include "base/text/one_line.hpp"

#include <fmt/format.h>
#include <fnmatch.h>
#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <regex>

#include "base/text/ascii.hpp"
#include "configs/load_config.hpp"
#include "configs/words/nearest.hpp"

namespace train::configs {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostCpus = 65536;
constexpr std::int64_t kMostGrace = 65535;  // Slurm's own limit of --signal

bool is_line(std::string_view text) { return std::none_of(text.begin(), text.end(), is_control); }

bool is_variable(const std::string& name) {
  static const std::regex kName("[A-Za-z_][A-Za-z0-9_]*");
  return std::regex_match(name, kName);
}

bool is_gpus(std::string_view text) {
  static const std::regex kGpus("([A-Za-z0-9_.-]+:)?[0-9]{1,4}");
  return std::regex_match(text.begin(), text.end(), kGpus);
}

bool is_time(std::string_view text) { return seconds_of_job_time(text).has_value(); }
bool is_value(std::string_view text) { return !text.empty() && is_line(text); }

/// Rule for a value, with its text.
struct Rule {
  bool (*holds)(std::string_view);
  const char* wanted;
};

constexpr Rule kName{is_plain_word, "a name without spaces and quotes"};
constexpr Rule kTime{is_time, "a time as \"4:00:00\" or \"1-12\""};
constexpr Rule kMemory{is_memory, "an amount as \"320G\", or \"0\" for all"};
constexpr Rule kGpus{is_gpus, "a number as \"4\" or \"h100:4\""};
constexpr Rule kLine{is_value, "one line of text"};

class ProfileReader {
 public:
  explicit ProfileReader(const std::string& file) : file_(file) {
    profile_.name = fs::path(file).stem().string();
  }

  Result<ClusterProfile> read(const toml::table& root) {
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      const auto reader = readers().find(name);
      if (reader == readers().end()) {
        return unknown(name, key.source());
      }
      TRAIN_RETURN_IF_ERROR(reader->second(*this, name, node));
    }
    return profile_;
  }

 private:
  using Read = std::function<Status(ProfileReader&, const std::string&, const toml::node&)>;

  template <auto Member>
  static Read text(Rule rule) {
    return [rule](ProfileReader& self, const std::string& key, const toml::node& node) -> Status {
      const auto* value = node.as_string();
      const auto* whole = node.as_integer();
      const std::string found = value != nullptr   ? value->get()
                                : whole != nullptr ? fmt::format("{}", whole->get())
                                                   : std::string();
      if ((value == nullptr && whole == nullptr) || !rule.holds(found)) {
        return self.wrong(key, node, rule.wanted);
      }
      self.profile_.*Member = found;
      return {};
    };
  }

  template <auto Member>
  static Read whole(std::int64_t low, std::int64_t high) {
    return [=](ProfileReader& self, const std::string& key, const toml::node& node) -> Status {
      const auto* value = node.as_integer();
      if (value == nullptr || value->get() < low || value->get() > high) {
        return self.wrong(key, node, fmt::format("an integer of {} .. {}", low, high));
      }
      self.profile_.*Member = value->get();
      return {};
    };
  }

  template <auto Member>
  static Read list(Rule rule) {
    return [rule](ProfileReader& self, const std::string& key, const toml::node& node) -> Status {
      const toml::array* values = node.as_array();
      if (values == nullptr) {
        return self.wrong(key, node, "a list of texts in quotes");
      }
      for (const toml::node& element : *values) {
        const auto* value = element.as_string();
        if (value == nullptr || !rule.holds(value->get())) {
          return self.wrong(key, element, fmt::format("of each entry {}", rule.wanted));
        }
        (self.profile_.*Member).push_back(value->get());
      }
      return {};
    };
  }

  static Status variables(ProfileReader& self, const std::string& key, const toml::node& node) {
    const toml::table* values = node.as_table();
    if (values == nullptr) {
      return self.wrong(key, node, "a section [environment] with lines NAME = \"value\"");
    }
    for (const auto& [name, entry] : *values) {
      const std::string variable(name.str());
      const auto* value = entry.as_string();
      if (!is_variable(variable)) {
        return self.refuse(name.source(), fmt::format("{}: \"{}\" is not a variable name", key,
                                                      one_line(variable)));
      }
      if (value == nullptr || !is_line(value->get())) {
        return self.wrong(fmt::format("{}.{}", key, variable), entry, "one line of text in quotes");
      }
      self.profile_.environment.emplace_back(variable, value->get());
    }
    return {};
  }

  static const std::map<std::string, Read>& readers() {
    using P = ClusterProfile;
    static const std::map<std::string, Read> kReaders = {
        {"hosts", list<&P::hosts>(kLine)},
        {"partition", text<&P::partition>(kName)},
        {"account", text<&P::account>(kName)},
        {"constraint", text<&P::constraint>(kName)},
        {"time", text<&P::time>(kTime)},
        {"mem", text<&P::mem>(kMemory)},
        {"gpus", text<&P::gpus>(kGpus)},
        {"cpus", whole<&P::cpus>(1, kMostCpus)},
        {"grace_s", whole<&P::grace_s>(1, kMostGrace)},
        {"interface", text<&P::interface>(kName)},
        {"run_dir", text<&P::run_dir>(kLine)},
        {"local_dir", text<&P::local_dir>(kLine)},
        {"modules", list<&P::modules>(kName)},
        {"environment", variables},
        {"before", list<&P::before>(kLine)}};
    return kReaders;
  }

  Error refuse(const toml::source_region& where, const std::string& what) const {
    return user_error(fmt::format("{}:{}: {}", file_, where.begin.line, what));
  }

  Error wrong(const std::string& key, const toml::node& node, const std::string& wanted) const {
    const auto* value = node.as_string();
    return refuse(
        node.source(),
        fmt::format("{} wants {}{}", key, wanted,
                    value == nullptr ? std::string()
                                     : fmt::format(", found \"{}\"", one_line(value->get()))));
  }

  Error unknown(const std::string& name, const toml::source_region& where) const {
    std::vector<std::string> known;
    for (const auto& entry : readers()) {
      known.push_back(entry.first);
    }
    std::string hint = did_you_mean(name, known);
    if (hint.empty()) {
      hint = fmt::format("; a profile knows {}", fmt::join(known, ", "));
    }
    return refuse(where, fmt::format("unknown key \"{}\"{}", one_line(name), hint));
  }

  std::string file_;
  ClusterProfile profile_;
};

Result<ClusterProfile> load_profile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || file.gcount() == 0 || text.size() == static_cast<std::size_t>(file.gcount())) {
    return user_error(
        fmt::format("{}: cannot be read as a cluster profile: empty, too large or not readable",
                    path.string()));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_cluster_profile(text, path.string());
}

/// Files ending in .toml of a directory, which may be missing, in name order.
std::vector<fs::path> profiles_in(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory, none)) {
    if (entry.path().extension() == ".toml") {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Result<ClusterProfile> named_profile(const fs::path& directory, const std::string& name) {
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".toml");
  const fs::path path = is_path ? fs::path(name) : directory / (name + ".toml");
  std::error_code unknown;
  if (fs::is_regular_file(path, unknown)) {
    return load_profile(path);
  }
  if (is_path) {
    return user_error(fmt::format("--profile {}: no such file", one_line(name)));
  }
  std::vector<std::string> names;
  for (const fs::path& known : profiles_in(directory)) {
    names.push_back(known.stem().string());
  }
  const std::string hint = did_you_mean(name, names);
  return user_error(fmt::format(
      "--profile {}: no {}{}", one_line(name), path.string(),
      !hint.empty() ? hint
                    : fmt::format("; there is {}",
                                  names.empty() ? "none; the path of a profile's file will do"
                                                : fmt::format("{}", fmt::join(names, ", ")))));
}

}  // namespace

std::optional<std::int64_t> seconds_of_job_time(std::string_view time) {
  // minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]
  static const std::regex kForm(
      "(?:([0-9]{1,5})-)?([0-9]{1,6})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?");
  std::match_results<std::string_view::const_iterator> match;
  if (!std::regex_match(time.begin(), time.end(), match, kForm)) {
    return std::nullopt;
  }
  const auto part = [&](std::size_t i) {
    return match[i].matched ? std::stoll(match[i].str()) : 0;
  };
  std::int64_t seconds = 0;
  if (match[1].matched || match[4].matched) {
    seconds = ((part(1) * 24 + part(2)) * 60 + part(3)) * 60 + part(4);
  } else {
    seconds = part(2) * 60 + part(3);
  }
  return seconds > 0 ? std::optional(seconds) : std::nullopt;
}

bool is_memory(std::string_view text) {
  static const std::regex kMemoryForm("[0-9]{1,9}([KMGT]B?)?");
  return std::regex_match(text.begin(), text.end(), kMemoryForm);
}

bool is_plain_word(std::string_view text) {
  static constexpr std::string_view kSigns = "_.,:+=/@*&|()[]-";
  return !text.empty() && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char letter) {
           return is_alphanumeric(letter) || kSigns.find(letter) != std::string_view::npos;
         });
}

Result<ClusterProfile> parse_cluster_profile(std::string_view text, const std::string& file_name) {
  try {
    return ProfileReader(file_name).read(toml::parse(text));
  } catch (const toml::parse_error& error) {
    return user_error(fmt::format("{}:{}: not valid TOML: {}", file_name, error.source().begin.line,
                                  one_line(error.description())));
  }
}

Result<ClusterProfile> find_cluster_profile(const fs::path& directory, const std::string& name,
                                            const std::string& host) {
  if (!name.empty()) {
    return named_profile(directory, name);
  }
  std::optional<ClusterProfile> chosen;
  for (const fs::path& path : profiles_in(directory)) {
    auto profile = TRAIN_TRY(load_profile(path));
    const bool matches =
        std::any_of(profile.hosts.begin(), profile.hosts.end(), [&](const std::string& pattern) {
          return ::fnmatch(pattern.c_str(), host.c_str(), 0) == 0;
        });
    if (matches && chosen) {
      return user_error(
          fmt::format("{}: host \"{}\" matches the profile {} too; name one with "
                      "--profile",
                      path.string(), one_line(host), chosen->name));
    }
    if (matches) {
      chosen = std::move(profile);
    }
  }
  return chosen ? std::move(*chosen) : ClusterProfile{};
}

}  // namespace train::configs
