#include "base/result.hpp"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace train {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) {
    return user_error("odd");
  }
  return value / 2;
}

Status check_half(int value, int& out) {
  TRAIN_RETURN_IF_ERROR(half(value));
  out = *half(value);
  return {};
}

std::vector<Result<std::string>> texts(bool good) {
  return {good ? Result<std::string>(std::string(64, 'x')) : user_error(std::string(64, 'e'))};
}

Result<std::string> first_of(bool good) {
  const std::string text = TRAIN_TRY(std::move(texts(good).front()));
  return text + "y";
}

TEST_CASE("result: TRAIN_TRY takes a result out of a temporary, which then is gone",
          "[base][result]") {
  CHECK(*first_of(true) == std::string(64, 'x') + "y");
  CHECK(first_of(false).error().message == std::string(64, 'e'));
  const Result<std::string> kept = first_of(true);
  const auto copied = [&]() -> Result<std::size_t> {
    const std::string text = TRAIN_TRY(kept);
    return text.size();
  };
  CHECK((*copied() == 65 && kept->size() == 65));
}

TEST_CASE("result: holds a value or an error, never both", "[base][result]") {
  const Result<int> good = half(4);
  REQUIRE(good.ok());
  CHECK(*good == 2);
  CHECK_THROWS_AS(good.error(), CheckFailed);
  const Result<int> bad = half(3);
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().message == "odd");
  CHECK_THROWS_WITH(bad.value(), Catch::Contains("odd"));
}

TEST_CASE("result: the macro returns the error and only the error", "[base][result]") {
  int out = 0;
  CHECK(check_half(8, out).ok());
  CHECK(out == 4);
  const Status bad = check_half(7, out);
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().message == "odd");
  CHECK(out == 4);
  CHECK_THROWS_AS(Status().error(), CheckFailed);
}

TEST_CASE("result: carries move-only values out", "[base][result]") {
  Result<std::unique_ptr<int>> owner(std::make_unique<int>(5));
  const std::unique_ptr<int> taken = *std::move(owner);
  REQUIRE(taken != nullptr);
  CHECK(*taken == 5);
}

TEST_CASE("error: the kind decides the exit code", "[base][error]") {
  CHECK(user_error("x").exit_code() == 2);
  CHECK(failure("x").exit_code() == 1);
}

TEST_CASE("check: a broken invariant names condition, text, file and line", "[base][check]") {
  const int value = 3;
  CHECK_NOTHROW([&] { TRAIN_CHECK(value == 3); }());
  CHECK_THROWS_WITH([&] { TRAIN_CHECK(value == 4, "value is {}", value); }(),
                    Catch::Contains("result_test.cpp:") && Catch::Contains("value == 4") &&
                        Catch::Contains("value is 3"));
}

}  // namespace
}  // namespace train
