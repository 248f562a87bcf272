#pragma once

namespace train {

/// Variable by which a machine loads its own libraries into every program. A package's launcher
/// (cli/launcher), which uses no C++ library, moves its value; other programs get it back
/// (environment_of_others()).
struct SetAside {
  const char* name;
  const char* kept;  ///< Variable that has the value meanwhile.
};

inline constexpr SetAside kSetAside[] = {{"LD_PRELOAD", "ACTORTRAIN_LD_PRELOAD"},
                                         {"LD_AUDIT", "ACTORTRAIN_LD_AUDIT"}};

}  // namespace train
