fn main() {
    rule_files::appliance("rules/default.nft".as_ref());
}
