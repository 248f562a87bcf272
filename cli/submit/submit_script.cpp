#include "cli/submit/submit_script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "storage/files/untrusted_text.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;

/// The warning comes at most this fraction of the job's time before its end.
constexpr std::int64_t kGraceShare = 4;

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char letter) {
    return static_cast<unsigned char>(letter) < 32 || letter == 127;
  });
}

Status check(std::string_view what, std::string_view text) {
  return has_control(text) ? Status(user_error(fmt::format(
                                 "{} {} holds a line break or another control character, which no "
                                 "batch script can hold; rename it",
                                 what, storage::shown(text))))
                           : Status();
}

Status check_all(const BatchJob& job) {
  TRAIN_RETURN_IF_ERROR(check("the run's directory", job.run_directory.string()));
  TRAIN_RETURN_IF_ERROR(check("the working directory", job.work_directory.string()));
  for (const std::string& word : job.words) {
    TRAIN_RETURN_IF_ERROR(check("the argument", word));
  }
  for (const auto& [name, value] : job.cluster.environment) {
    TRAIN_RETURN_IF_ERROR(check(name, value));
  }
  return {};
}

/// True for a path without characters that sbatch interprets in its directives.
bool plain_path(const fs::path& path) {
  const std::string text = path.string();
  return text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-") ==
         std::string::npos;
}

std::string job_name(const std::string& name) {
  std::string safe = name;
  std::replace_if(
      safe.begin(), safe.end(),
      [](char letter) {
        const char word[] = {'a', letter};
        return !configs::is_plain_word(std::string_view(word, 2));
      },
      '_');
  return safe;
}

std::int64_t grace_of(const configs::ClusterProfile& cluster) {
  const auto seconds = configs::seconds_of_job_time(cluster.time);
  return seconds ? std::clamp<std::int64_t>(*seconds / kGraceShare, 1, cluster.grace_s)
                 : cluster.grace_s;
}

std::string requests(const BatchJob& job) {
  const configs::ClusterProfile& cluster = job.cluster;
  std::string text = "#!/bin/bash\n";
  const auto ask = [&text](std::string_view option, const std::string& value) {
    if (!value.empty()) {
      text += fmt::format("#SBATCH --{}={}\n", option, value);
    }
  };
  ask("job-name", job_name(job.name));
  ask("nodes", fmt::format("{}", job.nodes));
  ask("ntasks-per-node", "1");
  ask("cpus-per-task", fmt::format("{}", job.cpus));
  ask("gpus-per-node", cluster.gpus);
  ask("mem", cluster.mem);
  ask("time", cluster.time);
  ask("account", cluster.account);
  ask("partition", cluster.partition);
  ask("constraint", cluster.constraint);
  ask("output",
      plain_path(job.run_directory) ? (job.run_directory / "slurm-%j.out").string() : "/dev/null");
  ask("open-mode", "append");
  ask("signal", fmt::format("B:USR1@{}", grace_of(cluster)));
  text.append("#SBATCH --requeue\n");
  // Continue with the remaining nodes.
  return job.nodes > 1 ? text.append("#SBATCH --no-kill\n") : text;
}

std::string opening(const BatchJob& job) {
  std::string text = fmt::format(R"(
# Trains until step {1}, job after job: written by `actortrain submit`.
set -euo pipefail
run_directory={0}
last_step={1}
)",
                                 shell_quoted(job.run_directory.string()), job.steps);
  if (!plain_path(job.run_directory)) {
    text += "exec >>\"$run_directory/slurm-$SLURM_JOB_ID.out\" 2>&1\n";
  }
  return text + R"(
# A job that is queued again after the last step has nothing to do.
marker=$run_directory/finished
if [[ -f $marker ]]; then
  read -r reached <"$marker" || true
  if [[ $reached =~ ^[0-9]{1,12}$ ]] && ((10#$reached >= last_step)); then
    echo "job $SLURM_JOB_ID: all $last_step steps are done"
    exit 0
  fi
fi
)";
}

std::string preparation(const BatchJob& job) {
  const configs::ClusterProfile& cluster = job.cluster;
  std::string text = fmt::format("\ncd {}\n", shell_quoted(job.work_directory.string()));
  if (cluster.modules.empty() && cluster.before.empty() && cluster.environment.empty()) {
    return text;
  }
  text += fmt::format("\n# Of the cluster profile {}.\nset +u\n", shell_quoted(cluster.name));
  if (!cluster.modules.empty()) {
    text += "if ! command -v module >/dev/null; then\n  set +e\n  . /etc/profile\n  set -e\nfi\n";
  }
  for (const std::string& module : cluster.modules) {
    text += fmt::format("module load {}\n", shell_quoted(module));
  }
  for (const auto& [name, value] : cluster.environment) {
    text += fmt::format("export {}={}\n", name, shell_quoted(value));
  }
  for (const std::string& line : cluster.before) {
    text.append(line).append("\n");
  }
  return text.append("set -euo pipefail\n");
}

/// Shell functions of the script. Traps contain no $(...): two of those at once confuse bash.
constexpr const char* kFunctions = R"(
# The warning before the job's time is over comes to this shell alone; the launchers need it.
step=
relay() {
  if ! scancel --signal=USR1 "$SLURM_JOB_ID" && [[ -n $step ]]; then
    kill -s USR1 "$step" || true # srun passes it on
  fi
}
warned=0
caught=0
trap 'warned=1 caught=1; relay' USR1
trap 'caught=1' TERM # Slurm ends the job; the launchers were told too

# A job that Slurm is ending is not RUNNING: it queues it again by itself, or it was cancelled.
queue_again() {
  local try found
  for try in 1 2 3 4 5 6; do
    found=$(scontrol -o show job "$SLURM_JOB_ID") || found=
    if [[ $found =~ JobState=([A-Z_]+) && ${BASH_REMATCH[1]} != RUNNING ]]; then
      echo "job $SLURM_JOB_ID: is ${BASH_REMATCH[1]}, not queued again from here"
      return
    fi
    if scontrol requeue "$SLURM_JOB_ID"; then
      echo "job $SLURM_JOB_ID: queued again"
      return
    fi
    if ((try < 6)); then
      sleep 5
    fi
  done
  echo "job $SLURM_JOB_ID: could not be queued again; submit the run once more" >&2
}
)";

/// srun's exit code may belong to a task that srun ended itself: the head's own is kept in a file.
std::string step(const BatchJob& job) {
  std::string words;
  for (const std::string& word : job.words) {
    words.append(" ").append(shell_quoted(word));
  }
  return fmt::format(R"(
if ((warned)); then # already: no time to start anything
  queue_again
  exit 75
fi

# The exit code that counts is that of the first launcher, the head; srun's may be another's.
verdict=$run_directory/slurm-$SLURM_JOB_ID.exit
rm -f -- "$verdict"
newest() {{
  local name step found=-1
  for name in "$run_directory"/checkpoints/step-*; do
    step=${{name##*/step-}}
    if [[ $step =~ ^[0-9]+$ ]] && ((10#$step > found)); then found=$((10#$step)); fi
  done
  echo "$found"
}}
before=$(newest)
# One of another node that is killed is started again, and the head waits for it; but not when all
# are told to end. What Slurm tells a task it tells whatever that has started.
launcher='
told=0
trap told=1 USR1 TERM INT
node=${{SLURM_PROCID:-0}}
for ((starts = 0; ; ++starts)); do
  code=0
  "${{@:3}}" || code=$?
  if ((code != 137 || told || node == 0 || starts >= $2)); then break; fi
  echo "node $node: the launcher was killed, and is started again" >&2
done
if ((node == 0)); then echo "$code" >"$1"; fi
exit "$code"'
srun --nodes={0} --ntasks={0} --ntasks-per-node=1 --cpus-per-task={1} --kill-on-bad-exit=1 \
  --no-kill bash -c "$launcher" launcher "$verdict" {2} \
 {3} &
step=$!
code=127
while :; do
  caught=0 ended=0
  wait "$step" || ended=$?
  ((ended == 127)) || code=$ended # 127: its end was known before
  ((caught)) || break             # a trap ends one wait, not the step
done
if [[ -f $verdict ]]; then
  told=
  read -r told <"$verdict" || true # a full disk may have left it empty
  rm -f -- "$verdict" || true
  if [[ $told =~ ^[0-9]{{1,3}}$ ]]; then
    code=$told
  else
    echo "job $SLURM_JOB_ID: the head's exit code could not be kept; srun's is $code" >&2
  fi
fi

case $code in
  0)
    {{ echo "$last_step" >"$marker.$SLURM_JOB_ID" &&
      mv -f -- "$marker.$SLURM_JOB_ID" "$marker"; }} ||
      echo "job $SLURM_JOB_ID: that it is done could not be noted in $marker" >&2
    echo "job $SLURM_JOB_ID: all $last_step steps are done"
    ;;
  75) queue_again ;;
  137) # the head was killed: worth another start if this one came further than the one before
    if [[ $(newest) != "$before" ]]; then
      queue_again
    else
      echo "job $SLURM_JOB_ID: the head was killed before it saved anything" >&2
    fi
    ;;
  *) echo "job $SLURM_JOB_ID: the run ended with exit code $code" >&2 ;;
esac
exit "$code"
)",
                     job.nodes, job.cpus, job.restarts, words);
}

}  // namespace

fs::path finished_marker(const fs::path& run_directory) { return run_directory / "finished"; }

std::string shell_quoted(const std::string& word) {
  std::string quoted(1, '\'');
  for (const char letter : word) {
    quoted.append(letter == '\'' ? "'\\''" : std::string_view(&letter, 1));
  }
  quoted.push_back('\'');
  return quoted;
}

Result<std::string> batch_script(const BatchJob& job) {
  TRAIN_RETURN_IF_ERROR(check_all(job));
  return fmt::format("{}{}{}{}{}", requests(job), opening(job), kFunctions, preparation(job),
                     step(job));
}

}  // namespace train::cli
