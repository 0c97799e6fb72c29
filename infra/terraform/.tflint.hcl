# Core rules only: they run without a network.
plugin "terraform" {
  enabled = true
  preset  = "all"
}

# Modules here are few and small; main.tf, variables.tf and outputs.tf are kept.
rule "terraform_standard_module_structure" {
  enabled = false
}
