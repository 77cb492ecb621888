"""The target model: configuration, binding, layers, KV log."""
