// Forecasts against scaling tables that others have published (testdata/published.json), with the errors
// written down there: a change that makes a forecast worse, or better than is written, fails.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/plan/simulate.h"

namespace lockstep::plan {
namespace {

const Json& published() {
  static const Json json = Json::read_file(LOCKSTEP_SOURCE_DIR "/src/plan/testdata/published.json");
  return json;
}

// A forward pass of a third of the time and a backward pass of two thirds, block by block; every block's
// gradients are ready when its backward pass has ended. The update has a hundredth.
Step step_of(const Json& table) {
  Step step;
  std::vector<std::pair<double, double>> blocks;  // share of the time, bytes
  for (const Json& stage : published().at("networks").at(table.at("network").as_string()).items()) {
    const auto count = static_cast<double>(stage.at("blocks").as_int());
    for (int64_t i = 0; i < stage.at("blocks").as_int(); ++i)
      blocks.emplace_back(
          stage.at("share").as_double() / count,
          stage.at("parameters").as_double() / count * table.at("bytes_per_gradient").as_double());
  }
  for (const auto& [share, bytes] : blocks) step.launches.push_back({0.33 * share, 0});
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    step.launches.push_back({0.66 * block->first, 0});
    step.sums.push_back({block->second, 1, static_cast<int>(step.launches.size())});
  }
  step.launches.push_back({0.01, 1});
  return step;
}

Surroundings surroundings(const Json& table, int64_t devices) {
  Surroundings around{.devices = devices, .jitter = 0.01};
  around.network.inside = find_link(table.at("link").as_string());
  around.network.between = find_link(table.contains("between") ? table.at("between").as_string() : "ib400");
  around.network.per_node = static_cast<int>(table.at("per_node").as_int());
  around.network.rails = table.contains("rails") ? static_cast<int>(table.at("rails").as_int()) : 0;
  return around;
}

double step_s(const Json& table, int64_t devices, double alone_s) {
  Step step = step_of(table);
  for (Launch& launch : step.launches) launch.seconds *= alone_s;
  return simulate(step, surroundings(table, devices)).step_s;
}

// The step of one device with which the forecast for the smallest count of the table is what was published.
double alone_s(const Json& table, int64_t devices, double published_s) {
  double low = 0, high = published_s;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (step_s(table, devices, middle) < published_s ? low : high) = middle;
  }
  return (low + high) / 2;
}

class Published : public ::testing::TestWithParam<size_t> {};

TEST_P(Published, ScalingIsForecastWithinTheErrorThatIsWrittenDown) {
  const Json& table = published().at("tables").at(GetParam());
  const double batch = table.at("batch").as_double();
  const auto& rows = table.at("throughput").members();
  const auto devices_of = [](const Json::Member& row) {
    return std::strtoll(row.first.c_str(), nullptr, 10);
  };
  const int64_t base = devices_of(rows[0]);
  const double base_rate = rows[0].second.as_double() / static_cast<double>(base);
  const double alone = alone_s(table, base, batch / base_rate);
  for (size_t i = 1; i < rows.size(); ++i) {
    const int64_t devices = devices_of(rows[i]);
    const double found = rows[i].second.as_double() / static_cast<double>(devices) / base_rate;
    const double forecast = batch / step_s(table, devices, alone) / base_rate;
    EXPECT_NEAR(forecast / found - 1, table.at("errors").at(rows[i].first).as_double(), 0.003)
        << table.at("name") << ", " << devices << " devices: published efficiency " << found << ", forecast "
        << forecast;
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, Published, ::testing::Range(size_t{0}, size_t{8}),
                         [](const auto& about) { return "Table" + std::to_string(about.param); });

}  // namespace
}  // namespace lockstep::plan
