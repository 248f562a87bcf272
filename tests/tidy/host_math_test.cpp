// Bits depend on this program alone (P1): its elementary functions are its own, and its threads
// compute in one mode.
#include <catch2/catch.hpp>
#include <initializer_list>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy {
namespace {

/// Functions of <cmath> that IEEE 754 does not fix to the bit, and distributions, which call them.
const std::regex kHostMath(
    R"((^|[^\w.>:]|\bstd::|[^\w]::)(exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|asin|acos|)"
    R"(atan|atan2|sinh|cosh|tanh|asinh|acosh|atanh|cbrt|hypot|erf|erfc|tgamma|lgamma|sincos|exp10)"
    R"()[fl]?\s*\()");
/// Every name above has one of these: an expression on each line of the product takes much longer.
const std::initializer_list<std::string_view> kHostMathParts = {
    "exp", "log", "pow", "sin", "cos", "tan", "cbrt", "hypot", "erf", "gamma"};
const std::regex kHostDistribution(
    R"(\bstd::(normal|lognormal|exponential|gamma|weibull|extreme_value|chi_squared|cauchy|)"
    R"(fisher_f|student_t|poisson|binomial|geometric|negative_binomial)_distribution\b|)"
    R"(\bstd::(complex|polar|beta|riemann_zeta|legendre|cyl_\w+|sph_\w+|expint)\b)");
const std::initializer_list<std::string_view> kHostDistributionParts = {
    "_distribution", "std::complex", "std::polar", "std::beta",  "std::riemann_zeta",
    "std::legendre", "std::cyl_",    "std::sph_",  "std::expint"};
/// Vectors' functions of the library, whose bits its next version may change.
const std::regex kVectorMath(R"(hwy/contrib/math|\bhn::(Exp|Expm1|Log|Log1p|Log2|Log10|Sin|Cos|)"
                             R"(Tanh|Sinh|Asin|Acos|Atan|Atanh|Asinh|Acosh)\()");
const std::regex kThread(R"(\bstd::j?thread\b(?!::)|\bstd::async\b|\bpthread_create\b)");

/// Device code calls CUDA's functions: their bits are those of the toolkit that it is built with,
/// whatever machine it runs on. Tests and benchmarks compare with the host's.
bool is_of_product(const SourceFile& file) {
  const std::string folder = folder_of(file.path);
  return file.is_code() && !file.path.ends_with(".cu") && !file.path.ends_with(".cuh") &&
         folder != "tests" && folder != "bench" && folder != "scripts";
}

/// Without a comment at its end.
std::string code_of(const std::string& line) { return line.substr(0, line.find("//")); }

Findings host_math_in(const SourceTree& tree) {
  Findings findings;
  for (const SourceFile& file : tree) {
    if (!is_of_product(file)) {
      continue;
    }
    const bool has_own = file.path.starts_with("base/math/fixed_math.");
    const bool has_thread = file.path == "base/process/joined_thread.hpp";
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string code = code_of(file.lines[i]);
      if (!has_own && has_any(code, kHostMathParts) && std::regex_search(code, kHostMath)) {
        findings.push_back(finding(file, i, "calls the host's function; take fixed::"));
      }
      if (has_any(code, kHostDistributionParts) && std::regex_search(code, kHostDistribution)) {
        findings.push_back(finding(file, i, "draws or computes by the host's functions"));
      }
      if (has_any(code, {"hn::", "hwy/"}) && std::regex_search(code, kVectorMath)) {
        findings.push_back(finding(file, i, "takes the library's; see kernels/functions-inl.hpp"));
      }
      if (!has_thread && has_any(code, {"thread", "async"}) && std::regex_search(code, kThread)) {
        findings.push_back(finding(file, i, "starts a thread in any mode; take JoinedThread"));
      }
    }
  }
  return findings;
}

TEST_CASE("host math: functions and threads of the product are its own", "[tidy][host_math][P1]") {
  const Findings findings = host_math_in(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("host math: the rules find every way to the host's", "[tidy][host_math]") {
  for (const std::string line :
       {"x = std::exp(y);", "x = ::exp(y);", "x = exp(y);", "x = expf(-y);", "x = std::tanh (y);",
        "return pow(10, 2);", "f(-std::log1p(y))", "x = -log(y);", "std::normal_distribution<> d;",
        "hn::Exp(d, x)", "#include <hwy/contrib/math/math-inl.h>", "std::thread([] {});",
        "std::jthread thread_;", "std::vector<std::thread> all;", "auto f = std::async(g);",
        "pthread_create(&a, nullptr, f, nullptr);"}) {
    CAPTURE(line);
    CHECK(host_math_in({make_file("engine/a.cpp", line + "\n")}).size() == 1);
    CHECK(host_math_in({make_file("kernels/a-inl.hpp", line + "\n")}).size() == 1);
    CHECK(host_math_in({make_file("tests/engine/a_test.cpp", line + "\n")}).empty());
    CHECK(host_math_in({make_file("bench/a.cpp", line + "\n")}).empty());
    CHECK(host_math_in({make_file("kernels/a.cu", line + "\n")}).empty());
  }
}

TEST_CASE("host math: the rules leave alone what is fixed or no call", "[tidy][host_math]") {
  for (const std::string line :
       {"x = fixed::exp(y);", "x = std::sqrt(y);", "x = std::ldexp(y, 3);", "// std::exp(x)",
        "a.log(y);", "p->cos(y);", "p.cos[i] = x;", "train::log_error(text);", "capped(d, x)",
        "exp_of(d, x)", "std::thread::id owner_;", "std::this_thread::get_id()",
        "std::thread::hardware_concurrency()", "JoinedThread thread_;"}) {
    CAPTURE(line);
    CHECK(host_math_in({make_file("engine/a.cpp", line + "\n")}).empty());
  }
  CHECK(host_math_in({make_file("base/math/fixed_math.cpp", "double exp(double x) {\n")}).empty());
}

}  // namespace
}  // namespace train::tidy
