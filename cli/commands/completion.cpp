#include <algorithm>
#include <cctype>

#include "cli/command.hpp"
#include "configs/fields/field_table.hpp"

namespace train::cli {
namespace {

/// Visible command, for completion and manual.
struct Described {
  std::string name;  ///< "eval", "data prepare"; empty: the program.
  std::string help;
  std::vector<const CLI::Option*> options;
  std::vector<std::string> inner;  ///< Names of its subcommands.
};

bool is_hidden(const CLI::App& command) { return command.get_group().empty(); }

void append(const CLI::App& command, const std::string& name, std::vector<Described>& all) {
  Described described{.name = name, .help = command.get_description(), .options = {}, .inner = {}};
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_group().empty()) {
      described.options.push_back(option);
    }
  }
  const std::size_t own = all.size();
  all.push_back(std::move(described));
  for (const CLI::App* inner : command.get_subcommands({})) {
    if (!is_hidden(*inner)) {
      all[own].inner.push_back(inner->get_name());
      append(*inner, name.empty() ? inner->get_name() : name + " " + inner->get_name(), all);
    }
  }
}

/// Visits the program and its commands, in the order of help.
template <class Use>
void with_commands(const Use& use) {
  CLI::App app;
  CommandSyntaxes syntaxes(app);
  describe_program(syntaxes);
  std::vector<Described> all;
  append(app, "", all);
  use(all);
}

/// "--step", "-h".
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) {
    names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    names.push_back("--" + name);
  }
  return names;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// Values of an option whose type lists them ("cpu|cuda", "fp32|bf16|fp16=fp32"); otherwise empty.
std::string choices_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  type = type.substr(0, type.find('='));
  const bool listed = type.find('|') != std::string::npos &&
                      std::none_of(type.begin(), type.end(), [](unsigned char letter) {
                        return std::isupper(letter) != 0 || letter == '.' || letter == ' ';
                      });
  std::replace(type.begin(), type.end(), '|', ' ');
  return listed ? type : "";
}

std::string bash_completion(const std::vector<Described>& all) {
  std::string words, values;
  for (const Described& command : all) {
    std::vector<std::string> after = command.inner;
    for (const CLI::Option* option : command.options) {
      for (const std::string& name : names_of(*option)) {
        after.push_back(name);
        if (const std::string choices = choices_of(*option); !choices.empty()) {
          values += fmt::format("    '{} {}') values='{}' ;;\n", command.name, name, choices);
        }
      }
    }
    words += fmt::format("    '{}') words='{}' ;;\n", command.name, fmt::join(after, " "));
  }
  std::vector<std::string> keys;
  for (const configs::Field& field : configs::all_fields()) {
    keys.push_back(field.key() + "=");
  }
  return fmt::format(R"(# Completion of actortrain for bash, which `actortrain completion` prints.
_actortrain() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD - 1]}}"
  local command='' words='' values='' word i
  # "--name=value" is three words.
  if [[ $cur == = ]]; then
    cur=''
  elif [[ $prev == = ]]; then
    prev="${{COMP_WORDS[COMP_CWORD - 2]}}"
  fi
  for ((i = 1; i < COMP_CWORD && i < 3; i++)); do
    word="${{command:+$command }}${{COMP_WORDS[i]}}"
    case '{0}' in
      *"|$word|"*) command="$word" ;;
      *) break ;;
    esac
  done
  case "$command $prev" in
{1}    *) ;;
  esac
  if [[ $prev == --set ]]; then
    compopt -o nospace 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -W '{2}' -- "$cur")
    return
  fi
  if [[ -n $values ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$cur")
    return
  fi
  case "$command" in
{3}  esac
  if [[ $cur == -* || ( $words == [a-z]* && $cur != */* ) ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  fi
}}
complete -o default -F _actortrain actortrain
)",
                     [&] {
                       std::string names = "|";
                       for (const Described& command : all) {
                         names += command.name.empty() ? "" : command.name + "|";
                       }
                       return names;
                     }(),
                     values, fmt::join(keys, " "), words);
}

/// Escapes text for roff: no control character at a line's beginning, no bare backslash or hyphen.
std::string roff(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '\\') {
      out += "\\e";
    } else if (letter == '-') {
      out += "\\-";
    } else {
      out += (out.empty() || out.back() == '\n') && (letter == '.' || letter == '\'') ? "\\&" : "";
      out += letter;
    }
  }
  return out;
}

std::string roff_options(const Described& command) {
  std::string text;
  for (const CLI::Option* option : command.options) {
    std::vector<std::string> names = names_of(*option);
    const std::string type = option->get_type_name();
    if (names.empty()) {
      names.push_back(type.empty() ? option->get_name() : type);
    } else if (takes_value(*option)) {
      names.back() += " " + (type.empty() ? "TEXT" : type);
    }
    text +=
        fmt::format(".TP\n\\fB{}\\fR\n{}{}{}\n", roff(fmt::format("{}", fmt::join(names, ", "))),
                    roff(option->get_description()), option->get_required() ? " (required)" : "",
                    option->get_default_str().empty() || type.find('=') != std::string::npos
                        ? ""
                        : roff(fmt::format(" (default: {})", option->get_default_str())));
  }
  return text;
}

std::string manual(const std::vector<Described>& all) {
  const Described& program = all.front();
  std::string text = fmt::format(
      ".TH ACTORTRAIN 1 \"\" \"actortrain {}\" \"User Commands\"\n"
      ".SH NAME\nactortrain \\- trains language models, bitwise reproducible\n"
      ".SH SYNOPSIS\n.B actortrain\n.I COMMAND\n[\\fIOPTION\\fR]...\n.SH DESCRIPTION\n{}\n"
      ".SH OPTIONS\n{}.SH COMMANDS\n",
      ACTORTRAIN_VERSION, roff(program.help), roff_options(program));
  for (const Described& command : all) {
    if (!command.name.empty() && command.inner.empty()) {
      text += fmt::format(".SS actortrain {}\n{}\n{}", roff(command.name), roff(command.help),
                          roff_options(command));
    }
  }
  return text + fmt::format(".SH EXIT STATUS\n.nf\n{}.fi\n", roff(kExitCodes));
}

}  // namespace

void describe_completion(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("completion", "Print completion of commands, options and keys for bash.");
  command.runs(+[](const CompletionOptions&) {
    with_commands([](const auto& all) { print(bash_completion(all)); });
    return Status();
  });
  command.read(
      "shell", [](std::string_view text) { return text == "bash"; }, "SHELL must be bash",
      "Shell, which may be left out: bash alone is supported", "SHELL");
}

void describe_manual(CommandSyntaxes& commands) {
  commands.add("manual", "Print the manual page, for man.").runs(+[](const ManualOptions&) {
    with_commands([](const auto& all) { print(manual(all)); });
    return Status();
  });
}

}  // namespace train::cli
